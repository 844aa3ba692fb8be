-- failed_attempt: how this worker has ended this attempt, if it left a row.
select outcome from forebay_failed_attempts where job_id = :job_id and attempt = :attempt and settled_by = :worker;
