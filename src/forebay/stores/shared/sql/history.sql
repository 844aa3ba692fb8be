-- name: events: events of one job, in order.
select kind, occurred_at, job_id, queue, attempt, actor, detail, changes
from forebay.events
where job_id = :job_id
order by id;

-- name: failed_attempts: failed attempts of one job, in order.
select attempt, outcome, worker, started_at, ended_at, error
from forebay.failed_attempts
where job_id = :job_id
order by attempt;

-- name: archive: archive entries of pruned jobs, last finished first.
-- Index: job_archive_day, or job_archive_task with a task; one of the two parts is empty. Days grow with the time of
-- finishing, so both orders are the same.
select *
from (
  select job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
  from forebay.job_archive
  where :task::text is null
    and day >= coalesce(:day::text, '')
    and day <= coalesce(:day::text, '~')
  order by day desc, finished_at desc, entry_id desc
  limit :limit
) as by_day
union all
select *
from (
  select job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
  from forebay.job_archive
  where task = :task::text
    and (:day::text is null or day = :day::text)
  order by finished_at desc, entry_id desc
  limit :limit
) as by_task;

-- name: archive_add: store the archive entry of a pruned job. It refers to nothing, so no deletion takes it along.
insert into forebay.job_archive (
  job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
)
values (
  :job_id, :queue, :task, :state, :created_at, :finished_at, :day, :duration_ms,
  :attempt, :failures, :excerpt, :reason
);
