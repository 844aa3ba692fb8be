-- limit_fairness_candidates: lock the next jobs of fairness lanes behind a limit, so many of each.
-- Locks: SKIP LOCKED.
-- Index: side_lanes_order.
select g.ctid::text, w.lane
from unnest(%(lanes)b::text[], %(rooms)b::bigint[]) with ordinality as w (lane, room, nth)
cross join lateral (
  select ctid
  from forebay.side_lanes
  where queue = %(queue)s and lane = w.lane
  order by age_capped, rank, seq
  limit w.room
  for update skip locked
) as g
order by w.nth;
