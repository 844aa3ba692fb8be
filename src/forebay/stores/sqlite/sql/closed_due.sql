-- closed_due: gates of a queue that it is time to look behind, and whether shares have lanes there.
select scope, exists (select 1 from forebay_lanes l where l.queue = c.queue and l.scope = c.scope)
from forebay_closed c
where queue = :queue and look_at <= :now
order by look_at
limit :limit;
