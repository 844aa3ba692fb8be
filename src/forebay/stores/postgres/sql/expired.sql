-- expired: take waiting jobs that were not started in time out of their tables, soonest first.
-- Relies on the four indexes on expires_at, which hold only jobs that have such a time, from the floor on if the duty
-- that looks for them keeps one; every claim asks for this, so the floor is looked up here.
with floor as materialized (
  select coalesce(max(walked_to), -9223372036854775808) as low
  from forebay.duties
  where name = 'floor of expired'
    and due_at > current_setting('forebay_tx.now')::bigint
    and walked_to <= current_setting('forebay_tx.now')::bigint
),
r as materialized (
  select ctid as spot, id, seq, queue, 'pending' as state, expires_at, 'r' as place
  from forebay.ready
  where expires_at is not null
    and expires_at >= (select low from floor)
    and expires_at <= current_setting('forebay_tx.now')::bigint
  order by expires_at, seq
  limit %(limit)s
  for update skip locked
),
d as materialized (
  select ctid as spot, id, seq, queue, state, expires_at, 'd' as place
  from forebay.due
  where expires_at is not null
    and expires_at >= (select low from floor)
    and expires_at <= current_setting('forebay_tx.now')::bigint
  order by expires_at, seq
  limit %(limit)s
  for update skip locked
),
g as materialized (
  select ctid as spot, id, seq, queue, 'pending' as state, expires_at, 'g' as place
  from forebay.gated
  where expires_at is not null
    and expires_at >= (select low from floor)
    and expires_at <= current_setting('forebay_tx.now')::bigint
  order by expires_at, seq
  limit %(limit)s
  for update skip locked
),
b as materialized (
  select ctid as spot, id, seq, queue, 'blocked' as state, expires_at, 'b' as place
  from forebay.blocked
  where expires_at is not null
    and expires_at >= (select low from floor)
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
r_gone as (
  delete from forebay.ready where ctid = any(array(select spot from chosen where place = 'r'))
),
d_gone as (
  delete from forebay.due where ctid = any(array(select spot from chosen where place = 'd'))
),
-- By id: a row of `blocked` is changed in place when a parent ends, and the newer one has another spot.
b_gone as (
  delete from forebay.blocked where id = any(array(select id from chosen where place = 'b'))
),
g_gone as (
  delete from forebay.gated where ctid = any(array(select spot from chosen where place = 'g'))
)
select id, state from chosen order by expires_at, seq;
