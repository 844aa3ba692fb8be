-- lane_heads: lock the next jobs of lanes, so many of each. Relies on index gated_order.
-- Guarantees: a job that another transaction has locked is passed over (SKIP LOCKED).
select g.spot::text, w.gate
from unnest(%(gates)b::text[], %(rooms)b::bigint[]) with ordinality as w (gate, room, nth)
cross join lateral (
  select ctid as spot
  from forebay.gated
  where queue = %(queue)s and gate = w.gate
  order by capped, rank, seq
  limit w.room
  for update skip locked
) as g
order by w.nth;
