-- name: progress: progress, log lines and step results of a job, each kind in its order.
select kind, position, name, attempt, recorded_at, body
from forebay_job_progress
where seq = :seq
order by kind, position;

-- name: progress_any: whether any job has progress: without any, removing jobs costs only this statement.
select 1 from forebay_job_progress limit 1;

-- name: progress_log_add: add a log line of a job, after the others if it has no :position of its own. A line that
-- exists was offered again.
-- Index: primary key; the last position is one seek away.
insert into forebay_job_progress (seq, kind, position, attempt, recorded_at, body)
select :seq, 'log', coalesce(:position, max(position) + 1, 1), :attempt, :recorded_at, :body
from forebay_job_progress
where seq = :seq
  and kind = 'log'
on conflict (seq, kind, position) do nothing;

-- name: progress_log_trim: keep the last :max_lines log lines.
delete from forebay_job_progress
where seq = :seq
  and kind = 'log'
  and position < (
    select position
    from forebay_job_progress
    where seq = :seq and kind = 'log'
    order by position desc
    limit 1 offset :max_lines - 1
  );

-- name: progress_remove: remove the progress of removed jobs (:seqs is a JSON array).
delete from forebay_job_progress where seq in (select value from json_each(:seqs));

-- name: progress_set: save the progress of an attempt, in place of the earlier one.
insert into forebay_job_progress (seq, kind, position, attempt, recorded_at, body)
values (:seq, 'progress', 0, :attempt, :recorded_at, :body)
on conflict (seq, kind, position) do update
set attempt = excluded.attempt,
    recorded_at = excluded.recorded_at,
    body = excluded.body;

-- name: progress_step_add: add a step result; the first of a name stays, and a job has at most :max_steps.
-- Relies on steps never being removed one by one: the last position is their number.
insert into forebay_job_progress (seq, kind, position, name, attempt, recorded_at, body)
select :seq, 'step', coalesce(max(position), 0) + 1, :name, :attempt, :recorded_at, :body
from forebay_job_progress
where seq = :seq
  and kind = 'step'
having coalesce(max(position), 0) < :max_steps
on conflict do nothing;

-- name: event: add one event; a job has at most :max_events of them. The id is the next of the series that the
-- audit log shares.
-- Index: forebay_events_job.
insert into forebay_events (id, kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
select
  1 + max(
    coalesce((select seq from sqlite_sequence where name = 'forebay_events'), 0),
    coalesce((select max(id) from forebay_audit), 0)
  ),
  :kind, :occurred_at, :job_id, :queue, :attempt, :actor, :detail, :changes
where :job_id is null
   or (select count(*) from forebay_events where job_id = :job_id) < :max_events;

-- name: event_overflow_add: count one more omitted event, on the row that stands for all of them.
update forebay_events
set detail = cast(cast(detail as integer) + 1 as text),
    occurred_at = :occurred_at
where job_id = :job_id
  and kind = 'events_omitted';

-- name: event_overflow_first: add the row that stands for all omitted events of a job.
insert into forebay_events (id, kind, occurred_at, job_id, queue, detail)
values (
  1 + max(
    coalesce((select seq from sqlite_sequence where name = 'forebay_events'), 0),
    coalesce((select max(id) from forebay_audit), 0)
  ),
  'events_omitted', :occurred_at, :job_id, :queue, '1'
);

-- name: events_prune: remove events past their retention of 90 days. Index: forebay_events_occurred_at.
delete from forebay_events
where id in (
  select id
  from forebay_events
  where occurred_at <= :before
  order by occurred_at
  limit :limit
);

-- name: events_remove: remove the events of a removed job. The audit log stays.
delete from forebay_events where job_id = :job_id;

-- name: failed_attempts_remove: remove the failed attempts of a removed job.
delete from forebay_failed_attempts where job_id = :job_id;

-- name: archive_prune: remove archive lines of a queue past their retention.
-- Index: forebay_job_archive_queue (queue, finished_at).
delete from forebay_job_archive
where entry_id in (
  select entry_id
  from forebay_job_archive
  where queue = :queue
    and finished_at <= :before
  order by finished_at
  limit :limit
);

-- name: progress_step_bytes: bytes of all step results of a job.
-- Cost: one entry for each step; the length of a blob is known without reading it.
select coalesce(sum(length(body)), 0)
from forebay_job_progress
where seq = :seq
  and kind = 'step';
