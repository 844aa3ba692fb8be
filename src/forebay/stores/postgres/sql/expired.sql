-- expired: take waiting jobs that were not started in time out of their tables, soonest first.
-- Locks: SKIP LOCKED.
-- Index: the four indexes on expires_at, which hold only jobs with such a time. They are read from the low-water mark
-- on, if the maintenance task keeps one; every claim runs this, so the mark is read here.
with low_water_mark as materialized (
  select coalesce(max(scan_position), -9223372036854775808) as low
  from forebay.maintenance
  where name = 'low-water mark of expired'
    and due_at > current_setting('forebay_tx.now')::bigint
    and scan_position <= current_setting('forebay_tx.now')::bigint
),
r as materialized (
  select ctid, id, seq, queue, 'pending' as state, expires_at, 'r' as location
  from forebay.ready
  where expires_at is not null
    and expires_at >= (select low from low_water_mark)
    and expires_at <= current_setting('forebay_tx.now')::bigint
  order by expires_at, seq
  limit %(limit)s
  for update skip locked
),
d as materialized (
  select ctid, id, seq, queue, state, expires_at, 'd' as location
  from forebay.delayed
  where expires_at is not null
    and expires_at >= (select low from low_water_mark)
    and expires_at <= current_setting('forebay_tx.now')::bigint
  order by expires_at, seq
  limit %(limit)s
  for update skip locked
),
g as materialized (
  select ctid, id, seq, queue, 'pending' as state, expires_at, 'g' as location
  from forebay.side_lanes
  where expires_at is not null
    and expires_at >= (select low from low_water_mark)
    and expires_at <= current_setting('forebay_tx.now')::bigint
  order by expires_at, seq
  limit %(limit)s
  for update skip locked
),
b as materialized (
  select ctid, id, seq, queue, 'blocked' as state, expires_at, 'b' as location
  from forebay.blocked
  where expires_at is not null
    and expires_at >= (select low from low_water_mark)
    and expires_at <= current_setting('forebay_tx.now')::bigint
  order by expires_at, seq
  limit %(limit)s
  for update skip locked
),
chosen as materialized (
  select * from r
  union all
  select * from d
  union all
  select * from g
  union all
  select * from b
  order by expires_at, seq
  limit %(limit)s
),
ready_removed as (
  delete from forebay.ready where ctid = any(array(select ctid from chosen where location = 'r'))
),
delayed_removed as (
  delete from forebay.delayed where ctid = any(array(select ctid from chosen where location = 'd'))
),
-- By id: a row of `blocked` is updated in place when a parent ends, and the newer version has another ctid.
blocked_removed as (
  delete from forebay.blocked where id = any(array(select id from chosen where location = 'b'))
),
lanes_removed as (
  delete from forebay.side_lanes where ctid = any(array(select ctid from chosen where location = 'g'))
)
select id, state from chosen order by expires_at, seq;
