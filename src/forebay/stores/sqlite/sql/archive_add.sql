-- archive_add: the line that stays of a pruned job. It refers to nothing, so nothing can take it along.
insert into forebay_job_archive (
  job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
)
values (
  :job_id, :queue, :task, :state, :created_at, :finished_at, :day, :duration_ms, :attempt, :failures, :excerpt,
  :reason
);
