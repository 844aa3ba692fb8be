-- dropped_queue_jobs: take waiting jobs of a dropped queue out of their tables: delayed or blocked ones first, then
-- pending ones in the main order, then those in side lanes.
-- Locks: SKIP LOCKED.
with d as materialized (
  select ctid, id, state, 1 as part, '' as lane, false as age_capped, run_at as rank, seq
  from forebay.delayed
  where queue = %(queue)s
  order by run_at, seq
  limit %(limit)s
  for update skip locked
),
b as materialized (
  select ctid, id, 'blocked' as state, 1 as part, '' as lane, false as age_capped, run_at as rank, seq
  from forebay.blocked
  where queue = %(queue)s
  order by run_at, seq
  limit %(limit)s
  for update skip locked
),
r as materialized (
  select ctid, id, 'pending' as state, 2 as part, '' as lane, age_capped, rank, seq
  from forebay.ready
  where queue = %(queue)s
  order by age_capped, rank, seq
  limit %(limit)s
  for update skip locked
),
g as materialized (
  select ctid, id, 'pending' as state, 3 as part, lane, age_capped, rank, seq
  from forebay.side_lanes
  where queue = %(queue)s
  order by lane, age_capped, rank, seq
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
  order by part, lane, age_capped, rank, seq
  limit %(limit)s
),
delayed_removed as (
  delete from forebay.delayed where ctid = any(array(select ctid from chosen where part = 1 and state <> 'blocked'))
),
-- By id: a row of `blocked` is updated in place when a parent ends, and the newer version has another ctid.
blocked_removed as (
  delete from forebay.blocked where id = any(array(select id from chosen where state = 'blocked'))
),
ready_removed as (
  delete from forebay.ready where ctid = any(array(select ctid from chosen where part = 2))
),
lanes_removed as (
  delete from forebay.side_lanes where ctid = any(array(select ctid from chosen where part = 3))
)
select id, state from chosen order by part, lane, age_capped, rank, seq;
