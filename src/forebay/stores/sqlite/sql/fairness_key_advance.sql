-- fairness_key_advance: jobs of a share were taken.
update forebay_fairness_keys
set virtual_time = virtual_time + :change
where queue = :queue and fairness_key = :fairness_key;
