-- shares_join: these shares have something to run. One that had nothing begins a step behind the first.
insert into forebay.shares (queue, share, turn)
select n.queue, n.share, coalesce(f.turn, 0) + n.step
from unnest(%(queues)b::text[], %(shares)b::text[], %(steps)b::bigint[]) as n (queue, share, step)
cross join lateral (
  select (
    select turn from forebay.shares where queue = n.queue and turn is not null order by turn limit 1
  ) as turn
) as f
where not exists (
  select 1 from forebay.shares where queue = n.queue and share = n.share and turn is not null
);
