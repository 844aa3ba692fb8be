-- name: queue_add: create a queue. No row means that another transaction has just created it.
insert into forebay.queues (name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at)
values (
  %(name)s, %(state)s, %(settings)s, %(scoring_version)s, %(rescored_to_seq)s, %(created_at)s, %(updated_at)s
)
on conflict (name) do nothing
returning name;

-- name: queue_lock: lock one queue, to change it or to count its jobs exactly.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
where name = %(name)s
for update;

-- name: queue_save: store a queue whose row is locked.
update forebay.queues
set state = %(state)s,
    settings = %(settings)s,
    scoring_version = %(scoring_version)s,
    rescored_to_seq = %(rescored_to_seq)s,
    updated_at = %(updated_at)s
where name = %(name)s;

-- name: queue_snapshots: the counters of all queues as in `counts`, and without a state the number of removed jobs.
-- Guarantees: one statement, so both are of the same moment. A job pruned between two statements would count twice.
select queue, state, sum(jobs)::bigint
from (
  select queue, state, jobs from forebay.queue_counts
  union all
  select queue, state, jobs
  from forebay.queue_count_deltas
  where id >= coalesce((select scan_position from forebay.maintenance where name = 'low-water mark of counts'), 0)
  union all
  select queue, null, jobs from forebay.removed_counts
) as c
group by queue, state;

-- name: queues_named: queues by name, whether a limit applies or limit lanes have jobs, and whether they have fairness
-- keys.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at,
  exists (select 1 from forebay.limits where scope = 'queue:' || name or scope not like 'queue:%%')
    or exists (select 1 from forebay.limit_lanes where queue = name),
  exists (select 1 from forebay.fairness_keys where queue = name)
from forebay.queues
where name = any(%(names)b::text[]);

-- name: dropped_queue_jobs: take waiting jobs of a dropped queue out of their tables: delayed or blocked ones first,
-- then pending ones in the main order, then those in side lanes.
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

-- name: count: append the changes of this transaction to the counters, by queue and state.
insert into forebay.queue_count_deltas (queue, state, jobs)
select * from unnest(%(queues)b::text[], %(states)b::text[], %(jobs)b::bigint[]);

-- name: counts: the counters of all queues with the changes that are not folded yet. Below the low-water mark all are
-- folded.
select queue, state, sum(jobs)::bigint
from (
  select queue, state, jobs from forebay.queue_counts
  union all
  select queue, state, jobs
  from forebay.queue_count_deltas
  where id >= coalesce((select scan_position from forebay.maintenance where name = 'low-water mark of counts'), 0)
) as c
group by queue, state;

-- name: counts_fold: fold changes into the counters, so that readers add up less. Answers how many changes, and the
-- last id that was given out.
-- Guarantees: one statement deletes a change and counts it. An uncommitted change stays, and a later scan from below
-- the low-water mark finds it.
with removed as (
  delete from forebay.queue_count_deltas
  where ctid = any(array(
    select ctid
    from forebay.queue_count_deltas
    where id >= %(since)s
    order by id
    limit %(limit)s
    for update skip locked
  ))
  returning id, queue, state, jobs
),
folded as (
  insert into forebay.queue_counts as c (queue, state, jobs)
  select queue, state, sum(jobs)
  from removed
  group by queue, state
  order by queue, state
  on conflict (queue, state) do update
  set jobs = c.jobs + excluded.jobs
)
select count(*), pg_sequence_last_value('forebay.queue_count_deltas_id_seq'::regclass) from removed;

-- name: counts_fold_lock: take the lock of the folding, or answer false: another transaction is folding.
select pg_try_advisory_xact_lock(hashtext('forebay.queue_count_deltas'));

-- name: counts_scan_mark: the marked id, if all transactions that were writing then have ended, and whether some have
-- not. It runs before the folding, which then sees all that they have written. A mark of another server counts as none.
select
  max(d.scan_position) filter (where d.due_at <= s.oldest),
  coalesce(bool_or(d.due_at > s.oldest and d.due_at <= s.coming), false)
from (
  select
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint as oldest,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint as coming
) as s
left join forebay.maintenance d on d.name = 'scan mark of counts';

-- name: removed_counts_add: count removed jobs of each queue. Only maintenance and operators remove jobs, in short
-- transactions, so this counter row blocks no insert and no worker.
-- Locks: by queue, against deadlocks.
insert into forebay.removed_counts as r (queue, jobs)
select *
from unnest(%(queues)b::text[], %(jobs)b::bigint[]) as n (queue, jobs)
order by queue collate "C"
on conflict (queue) do update
set jobs = r.jobs + excluded.jobs;

-- name: states: states of jobs, by id.
select id, state from forebay.all_jobs where id = any(%(ids)b::text[]);
