-- name: promote: put due jobs into the main order of their queues.
-- Cost: no join with the jobs, see `delayed_take_due`.
-- include: promoted_jobs
insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
select queue, age_capped, rank, seq, id, expires_at from moved;

-- name: promote_fair: put due jobs into the lanes of their fairness keys.
-- include: promoted_jobs
insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
select id, queue, (%(lanes)b::text[])[array_position(%(ids)b::text[], id)], age_capped, rank, seq, expires_at from moved;

-- name: delayed_lock: lock a scheduled or retrying job; no row if another transaction holds it.
select 1 from forebay.delayed where id = %(id)s for update skip locked;

-- name: delayed_take_due: take the scheduled and retrying jobs of a queue whose time has come out of their table,
-- earliest first.
-- Index: delayed_order (queue, run_at, seq), from a time on below which nothing was left: there may be any number of
-- dead tuples. `delayed_take_due_all` finds jobs that are committed late.
-- Cost: each job is probed by itself (`offset 0`). A table that was analysed when it was empty has one row for the
-- planner, however many dead tuples it has. A join might then read the whole index.
-- In a staggered queue a batch becomes pending and then none for a while. The transaction that moves the time of the
-- promote task takes the batch.
with rates as materialized (
  select q.queue, r.rate, greatest(1, r.rate / 10) as jobs,
    current_setting('forebay_tx.now')::bigint + (1000 * greatest(1, r.rate / 10) + r.rate - 1) / r.rate as until
  from (select %(queue)s::text as queue) as q
  left join lateral (
    select (settings::json ->> 'promote_per_second')::bigint as rate from forebay.queues where name = q.queue
  ) as r on true
),
due_tick as (
  insert into forebay.maintenance as d (name, due_at)
  select 'promote ' || p.queue, p.until
  from rates p
  where p.rate is not null
    -- On conflict the row is locked, whatever the condition below says; most claims come between two ticks.
    and not exists (
      select 1
      from forebay.maintenance
      where name = 'promote ' || p.queue and due_at > current_setting('forebay_tx.now')::bigint and due_at <= p.until
    )
    and exists (
      select 1
      from forebay.delayed
      where queue = %(queue)s and run_at >= %(since)s and run_at <= current_setting('forebay_tx.now')::bigint
    )
  on conflict (name) do update
  set due_at = excluded.due_at
  where d.due_at <= current_setting('forebay_tx.now')::bigint or d.due_at > excluded.due_at
  returning 1
),
taken as (
  delete from forebay.delayed
  where ctid = any(array(
    select ctid
    from forebay.delayed
    where queue = %(queue)s
      and run_at >= %(since)s
      and run_at <= current_setting('forebay_tx.now')::bigint
    order by run_at, seq
    limit (
      select case
        when p.rate is null then %(limit)s
        when exists (select 1 from due_tick) then least(p.jobs, %(limit)s)
        else 0
      end
      from rates p
    )
    for update skip locked
  ))
  returning id, state
)
select j.id, j.queue, t.state, j.ready_at, j.priority, j.failures, j.deadline_at, j.options
from taken t
cross join lateral (select * from forebay.jobs where id = t.id offset 0) as j;

-- name: delayed_take_due_all: the same in all queues, from the low-water mark on. Also answers how far it has read, if
-- there may be more: the number of jobs does not tell, since other transactions may hold rows that it found.
-- Guarantees: a row is locked by its ctid and not searched again, since no row of this table is ever updated.
with chosen as materialized (
  select d.ctid, d.run_at
  from forebay.queues q
  cross join lateral (
    select ctid, run_at, seq
    from forebay.delayed
    where queue = q.name and run_at >= %(since)s and run_at <= %(now)s
    order by run_at, seq
    limit %(limit)s
  ) as d
  -- `delayed_take_due` takes those of a staggered queue.
  where q.settings::json ->> 'promote_per_second' is null
  order by d.run_at, d.seq
  limit %(limit)s
),
taken as (
  delete from forebay.delayed
  where ctid = any(array(
    select d.ctid
    from chosen c
    cross join lateral (select ctid from forebay.delayed where ctid = c.ctid for update skip locked) as d
  ))
  returning id, state
)
select j.id, j.queue, t.state, j.ready_at, j.priority, j.failures, j.deadline_at, c.reached, j.options
from (select case when count(*) = %(limit)s then max(run_at) end as reached from chosen) as c
left join taken t on true
left join lateral (select * from forebay.jobs where id = t.id offset 0) as j on true;

-- name: next_due: the time at which the next scheduled or retrying job of these queues can become pending, by one probe
-- for each.
select min(greatest(d.run_at, (select due_at from forebay.maintenance where name = 'promote ' || q.name)))
from unnest(%(queues)b::text[], %(since)b::bigint[]) as q (name, since)
cross join lateral (
  select run_at from forebay.delayed where queue = q.name and run_at >= q.since order by run_at limit 1
) as d;

-- name: staggered_queues: queues whose jobs become pending a few at a time.
select name from forebay.queues where settings::json ->> 'promote_per_second' is not null order by name;

-- name: expired: take waiting jobs that were not started in time out of their tables, soonest first.
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

-- fragment: promoted_jobs: give jobs that are due their ranks.
with moved as (
  update forebay.jobs j
  set (rank, age_capped, rescore_at, updated_at) = (
    select (%(ranks)b::bigint[])[p.i], (%(age_capped)b::boolean[])[p.i], (%(rescores)b::bigint[])[p.i],
      greatest(%(now)s::bigint, j.run_at + 1) -- `promoted_at` in domain/settlement.py says why
    from (select array_position(%(ids)b::text[], j.id) as i) as p
  )
  where j.id = any(%(ids)b::text[])
  returning j.queue, j.age_capped, j.rank, j.seq, j.id, j.expires_at
)
