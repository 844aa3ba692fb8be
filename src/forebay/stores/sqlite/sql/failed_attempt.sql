-- failed_attempt: outcome that this worker has recorded for this attempt, if there is a row.
select outcome from forebay_failed_attempts where job_id = :job_id and attempt = :attempt and settled_by = :worker;
