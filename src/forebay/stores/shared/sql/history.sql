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

-- name: archive_add: store the archive entry of a pruned job. It refers to nothing, so no deletion takes it along.
insert into forebay.job_archive (
  job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
)
values (
  :job_id, :queue, :task, :state, :created_at, :finished_at, :day, :duration_ms,
  :attempt, :failures, :excerpt, :reason
);
