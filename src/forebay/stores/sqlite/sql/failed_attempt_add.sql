-- failed_attempt_add: record an attempt that failed or was lost. (job, attempt) is unique: none is recorded
-- twice.
insert into forebay_failed_attempts (job_id, attempt, outcome, worker, settled_by, started_at, ended_at, error)
values (:job_id, :attempt, :outcome, :ran_by, :worker, :started_at, :now, :error);
