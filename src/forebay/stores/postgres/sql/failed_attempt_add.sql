-- failed_attempt_add: store an attempt that failed or was lost. (job, attempt) is unique: none is stored twice.
insert into forebay.failed_attempts (job_id, attempt, outcome, worker, settled_by, started_at, ended_at, error)
values (
  %(job_id)s, %(attempt)s, %(outcome)s, %(ran_by)s, %(worker)s, %(started_at)s, %(now)s, %(error)s
);
