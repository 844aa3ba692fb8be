-- limit_fairness_advance: advance the virtual time of a lane whose jobs were unparked.
update forebay_limit_fairness_lanes
set virtual_time = virtual_time + :change
where queue = :queue and scope = :scope and fairness_key = :fairness_key;
