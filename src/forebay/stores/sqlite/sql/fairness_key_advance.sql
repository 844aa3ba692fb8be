-- fairness_key_advance: advance the virtual time of a fairness key whose jobs were claimed.
update forebay_fairness_keys
set virtual_time = virtual_time + :change
where queue = :queue and fairness_key = :fairness_key;
