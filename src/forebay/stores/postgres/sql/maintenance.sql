-- name: acquire_maintenance: give a maintenance task to the caller; no row means that it is not due.
-- A transaction by itself, since idle workers ask all the time.
-- Guarantees: of two callers at once the second waits for the first and then finds the new time in the future.
-- A time further ahead than the interval of the task was written before the clock was set back, and counts as due.
insert into forebay.maintenance as d (name, due_at)
values (%(name)s::text, forebay.now_ms() + %(every_ms)s::bigint)
on conflict (name) do update
set due_at = excluded.due_at
where d.due_at <= forebay.now_ms()
   or d.due_at > forebay.now_ms() + %(every_ms)s
returning 1::bigint;

-- name: prune_dead: delete dead jobs of a queue past their retention, oldest first.
-- Index: dead_queue (queue, finished_at, seq), from the low-water mark on.
delete from forebay.dead
where id = any(array(
    select id
    from forebay.dead
    where queue = %(queue)s and finished_at >= %(since)s and finished_at <= %(before)s
    order by finished_at, seq
    limit %(limit)s
    for update skip locked
  ))
returning seq, id, queue, task, state, created_at, finished_at, started_at, attempt, failures, reason,
  substring(result from 1 for 800);

-- name: prune_finished: delete finished jobs of a queue past their retention, oldest first.
-- Index: finished_queue (queue, finished_at, seq), from the low-water mark on.
delete from forebay.finished
where id = any(array(
    select id
    from forebay.finished
    where queue = %(queue)s and finished_at >= %(since)s and finished_at <= %(before)s
    order by finished_at, seq
    limit %(limit)s
    for update skip locked
  ))
  and finished_at >= %(since)s
  and finished_at <= %(before)s
returning seq, id, queue, task, state, created_at, finished_at, started_at, attempt, failures, reason,
  substring(result from 1 for 800);

-- name: low_water_marks: scan positions from which maintenance tasks start, and until when that is enough.
select name, scan_position, due_at from forebay.maintenance where name = any(%(names)b::text[]);

-- name: low_water_marks_save: store the positions from which the next scans start.
-- Locks: by name, against deadlocks.
insert into forebay.maintenance (name, due_at, scan_position)
select name, full_scan_at, scan_position
from unnest(%(names)b::text[], %(full_scan_at)b::bigint[], %(scan_positions)b::bigint[])
  as f (name, full_scan_at, scan_position)
on conflict (name) do update
set due_at = excluded.due_at,
    scan_position = excluded.scan_position;

-- name: clock_readings: recorded readings of the clock, by slot.
-- Index: primary key of `maintenance`, one probe for each slot.
select name, due_at
from forebay.maintenance
where name = any(%(names)b::text[]);

-- name: active_writers: whether other transactions write to `jobs`, the oldest running transaction, and the next one to
-- come.
-- Guarantees: a transaction that gives a new job its rank is listed from before it reads the settings of the queue
-- until it ends. A statement has its locks before it reads; `next_seqs` takes them for transactions of several
-- statements.
select
  exists (
    select
    from pg_locks
    where locktype = 'relation' and relation = 'forebay.jobs'::regclass and mode = 'RowExclusiveLock'
      and database = (select oid from pg_database where datname = current_database())
      and pid is distinct from pg_backend_pid()
  ),
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: partition_cancelled: cancelled jobs of a day.
select id
from forebay.finished
where finished_at >= %(start)s and finished_at < %(end)s and state = 'cancelled';

-- name: partition_counts: count the jobs that ended in a day, by queue and state.
select queue, state, count(*)
from forebay.finished
where finished_at >= %(start)s and finished_at < %(end)s
group by queue, state;

-- name: partition_history_remove: delete the attempts, progress, events and edges of the jobs of a day. The audit log
-- stays.
with removed as materialized (
  select id from forebay.finished where finished_at >= %(start)s and finished_at < %(end)s
),
a as (
  delete from forebay.failed_attempts h using removed where h.job_id = removed.id
),
e as (
  delete from forebay.dependencies h using removed where h.child_id = removed.id
),
n as (
  delete from forebay.job_progress h using removed where h.job_id = removed.id
)
delete from forebay.events h using removed where h.job_id = removed.id;

-- name: partition_timeouts: wait only a moment for the lock of a change of partitions, since all other transactions
-- wait behind it. Reading a whole day may take longer than other statements may.
select set_config('lock_timeout', '100ms', true), set_config('statement_timeout', '10min', true),
  set_config('enable_seqscan', 'on', true),
  set_config('enable_hashjoin', 'on', true);

-- name: partitions: partitions of finished jobs.
select c.relname::text
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'forebay.finished'::regclass
order by c.relname;

-- name: partitions_nonempty: those of some days that have jobs in the default partition.
select day
from unnest(%(days)s::bigint[]) as day
where exists (
  select from forebay.finished_default where finished_at >= day and finished_at < day + %(day_ms)s
);
