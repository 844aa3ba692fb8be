-- next_due: the time at which the next scheduled or retrying job of these queues can become pending, by one probe for
-- each.
select min(greatest(d.run_at, (select due_at from forebay.maintenance where name = 'promote ' || q.name)))
from unnest(%(queues)b::text[], %(since)b::bigint[]) as q (name, since)
cross join lateral (
  select run_at from forebay.delayed where queue = q.name and run_at >= q.since order by run_at limit 1
) as d;
