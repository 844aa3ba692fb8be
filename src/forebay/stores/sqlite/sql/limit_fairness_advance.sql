-- limit_fairness_advance: jobs of a lane were brought back.
update forebay_limit_fairness_lanes
set virtual_time = virtual_time + :change
where queue = :queue and scope = :scope and fairness_key = :fairness_key;
