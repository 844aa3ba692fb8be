-- name: progress: stored progress of a job, each kind in its order.
select kind, position, name, attempt, recorded_at, body
from forebay.job_progress
where job_id = %(job_id)s
order by kind, position;

-- name: progress_log_add: store a log line of a job, behind the others if it has no position of its own. A line that is
-- there was offered again.
-- Guarantees: the lease is locked, so no other transaction assigns positions at the same time.
insert into forebay.job_progress (job_id, kind, position, attempt, recorded_at, body)
select %(job_id)s::text, 'log', coalesce(%(position)s::bigint, max(position) + 1, 1), %(attempt)s, %(recorded_at)s,
  %(body)s::bytea
from forebay.job_progress
where job_id = %(job_id)s::text
  and kind = 'log'
on conflict (job_id, kind, position) do nothing;

-- name: progress_log_trim: delete all but the last log lines of a job.
delete from forebay.job_progress
where job_id = %(job_id)s
  and kind = 'log'
  and position < (
    select position
    from forebay.job_progress
    where job_id = %(job_id)s and kind = 'log'
    order by position desc
    limit 1 offset %(max_lines)s - 1
  );

-- name: progress_set: store how far an attempt has come, in place of its earlier report.
insert into forebay.job_progress (job_id, kind, position, attempt, recorded_at, body)
values (%(job_id)s, 'progress', 0, %(attempt)s, %(recorded_at)s, %(body)s)
on conflict (job_id, kind, position) do update
set attempt = excluded.attempt,
    recorded_at = excluded.recorded_at,
    body = excluded.body;

-- name: progress_step_add: store the result of a step; the first of a name stays, and a job has at most `max_steps`.
-- Returns the bytes of the results before this one; nothing if it was not added. Values out of line are not read.
-- Guarantees: steps are never deleted one by one, so the last position tells how many there are.
insert into forebay.job_progress (job_id, kind, position, name, attempt, recorded_at, body)
select %(job_id)s::text, 'step', coalesce(max(position), 0) + 1, %(name)s::text, %(attempt)s, %(recorded_at)s,
  %(body)s::bytea
from forebay.job_progress
where job_id = %(job_id)s::text
  and kind = 'step'
having coalesce(max(position), 0) < %(max_steps)s
on conflict (job_id, name) where kind = 'step' do nothing
returning (
  select coalesce(sum(octet_length(body)), 0)::bigint
  from forebay.job_progress
  where job_id = %(job_id)s::text
    and kind = 'step'
);

-- name: event: store one event; a job has at most `max_events`, and one row counts the rest. Two at the same instant
-- may both be stored as the last one, which does no harm.
-- Index: events_job.
with stored as (
  insert into forebay.events (kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
  select %(kind)s::text, %(occurred_at)s, %(job_id)s::text, %(queue)s::text, %(attempt)s::bigint, %(actor)s::text,
    %(detail)s::text, %(changes)s::text
  where %(job_id)s::text is null
     or (select count(*) from forebay.events where job_id = %(job_id)s::text) < %(max_events)s
  returning 1
),
more as (
  update forebay.events
  set detail = (detail::bigint + 1)::text,
      occurred_at = %(occurred_at)s
  where job_id = %(job_id)s::text
    and kind = 'events_omitted'
    and not exists (select 1 from stored)
  returning 1
)
insert into forebay.events (kind, occurred_at, job_id, queue, detail)
select 'events_omitted', %(occurred_at)s, %(job_id)s::text, %(queue)s::text, '1'
where not exists (select 1 from stored)
  and not exists (select 1 from more);

-- name: events_prune: delete events older than 90 days.
-- Index: events_occurred_at, from the low-water mark on.
delete from forebay.events
where id = any(array(
  select id
  from forebay.events
  where occurred_at >= %(since)s and occurred_at <= %(before)s
  order by occurred_at
  limit %(limit)s
  for update skip locked
))
returning occurred_at;

-- name: history_remove: delete the attempts, progress, events and edges of jobs. The audit log stays.
with a as (
  delete from forebay.failed_attempts where job_id = any(%(ids)b::text[])
),
e as (
  delete from forebay.dependencies where child_id = any(%(ids)b::text[])
),
n as (
  delete from forebay.job_progress where job_id = any(%(ids)b::text[])
)
delete from forebay.events where job_id = any(%(ids)b::text[]);

-- name: archive_prune: delete archive entries of a queue past their retention.
-- Index: job_archive_queue, from the low-water mark on.
delete from forebay.job_archive
where entry_id = any(array(
  select entry_id
  from forebay.job_archive
  where queue = %(queue)s and finished_at >= %(since)s and finished_at <= %(before)s
  order by finished_at
  limit %(limit)s
  for update skip locked
))
returning finished_at;
