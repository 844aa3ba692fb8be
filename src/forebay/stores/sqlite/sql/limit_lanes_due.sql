-- limit_lanes_due: gates of a queue that it is time to look behind, and whether shares have lanes there.
select scope, exists (select 1 from forebay_limit_fairness_lanes l where l.queue = c.queue and l.scope = c.scope)
from forebay_limit_lanes c
where queue = :queue and recheck_at <= :now
order by recheck_at
limit :limit;
