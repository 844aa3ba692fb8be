-- stragglers: take waiting jobs of a queue that was dropped out of their tables: those that are not due yet or
-- blocked, then the pending ones as they stand in its order, then those behind its gates.
with d as materialized (
  select ctid as spot, id, state, 1 as part, '' as gate, false as capped, run_at as rank, seq
  from forebay.due
  where queue = %(queue)s
  order by run_at, seq
  limit %(limit)s
  for update skip locked
),
b as materialized (
  select ctid as spot, id, 'blocked' as state, 1 as part, '' as gate, false as capped, run_at as rank, seq
  from forebay.blocked
  where queue = %(queue)s
  order by run_at, seq
  limit %(limit)s
  for update skip locked
),
r as materialized (
  select ctid as spot, id, 'pending' as state, 2 as part, '' as gate, capped, rank, seq
  from forebay.ready
  where queue = %(queue)s
  order by capped, rank, seq
  limit %(limit)s
  for update skip locked
),
g as materialized (
  select ctid as spot, id, 'pending' as state, 3 as part, gate, capped, rank, seq
  from forebay.gated
  where queue = %(queue)s
  order by gate, capped, rank, seq
  limit %(limit)s
  for update skip locked
),
chosen as materialized (
  select * from d
  union all
  select * from b
  union all
  select * from r
  union all
  select * from g
  order by part, gate, capped, rank, seq
  limit %(limit)s
),
d_gone as (
  delete from forebay.due where ctid = any(array(select spot from chosen where part = 1 and state <> 'blocked'))
),
-- By id: a row of `blocked` is changed in place when a parent ends, and the newer one has another spot.
b_gone as (
  delete from forebay.blocked where id = any(array(select id from chosen where state = 'blocked'))
),
r_gone as (
  delete from forebay.ready where ctid = any(array(select spot from chosen where part = 2))
),
g_gone as (
  delete from forebay.gated where ctid = any(array(select spot from chosen where part = 3))
)
select id, state from chosen order by part, gate, capped, rank, seq;
