-- next_due: when the next scheduled or retrying job of these queues is due, by one look for each.
select min(d.run_at)
from unnest(%(queues)b::text[], %(since)b::bigint[]) as q (name, since)
cross join lateral (
  select run_at from forebay.due where queue = q.name and run_at >= q.since order by run_at limit 1
) as d;
