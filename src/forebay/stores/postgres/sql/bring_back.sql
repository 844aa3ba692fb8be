-- bring_back: the first jobs behind gates go back to the order of their queue, so many of each.
-- Relies on index gated_order. What somebody else has locked is passed over.
with first as materialized (
  select g.*
  from unnest(%(gates)b::text[], %(rooms)b::bigint[]) as w (gate, room)
  cross join lateral (
    select ctid as spot, capped, rank, seq, id, expires_at
    from forebay.gated
    where queue = %(queue)s and gate = w.gate
    order by capped, rank, seq
    limit w.room
    for update skip locked
  ) as g
),
gone as (
  delete from forebay.gated where ctid = any(array(select spot from first))
)
insert into forebay.ready (queue, capped, rank, seq, id, expires_at)
select %(queue)s, capped, rank, seq, id, expires_at from first
returning id;
