-- archive_add: add the archive line of a pruned job. It refers to no other row, so it outlives the job.
insert into forebay_job_archive (
  job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
)
values (
  :job_id, :queue, :task, :state, :created_at, :finished_at, :day, :duration_ms, :attempt, :failures, :excerpt,
  :reason
);
