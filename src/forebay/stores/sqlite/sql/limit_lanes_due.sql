-- limit_lanes_due: lanes of limits of a queue that are due to be rechecked, and whether fairness keys have
-- lanes there.
select scope, exists (select 1 from forebay_limit_fairness_lanes l where l.queue = c.queue and l.scope = c.scope)
from forebay_limit_lanes c
where queue = :queue and recheck_at <= :now
order by recheck_at
limit :limit;
