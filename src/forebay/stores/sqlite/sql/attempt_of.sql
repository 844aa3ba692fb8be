-- attempt_of: how this worker has ended this attempt, if it left a row.
select ending from forebay_attempts where job_id = :job_id and attempt = :attempt and settled_by = :worker;
