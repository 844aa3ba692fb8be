-- limit_lanes_due: limit lanes of these queues that are to be rechecked, and whether fairness keys have jobs there.
select queue, scope,
  exists (select 1 from forebay.limit_fairness_lanes l where l.queue = c.queue and l.scope = c.scope offset 0)
from forebay.limit_lanes c
where queue = any(%(queues)b::text[]) and recheck_at <= forebay.now_ms()
order by recheck_at
limit %(limit)s;
