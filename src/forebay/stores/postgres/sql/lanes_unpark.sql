-- lanes_unpark: move the first jobs of limit lanes back to the main order of their queue, so many of each.
-- Locks: SKIP LOCKED.
-- Index: side_lanes_order.
with first as materialized (
  select g.*
  from unnest(%(lanes)b::text[], %(rooms)b::bigint[]) as w (lane, room)
  cross join lateral (
    select ctid, age_capped, rank, seq, id, expires_at
    from forebay.side_lanes
    where queue = %(queue)s and lane = w.lane
    order by age_capped, rank, seq
    limit w.room
    for update skip locked
  ) as g
),
removed as (
  delete from forebay.side_lanes where ctid = any(array(select ctid from first))
)
insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
select %(queue)s, age_capped, rank, seq, id, expires_at from first
returning id;
