-- attempt_of: whether this worker has already written down the end of this attempt.
select 1 from forebay_attempts where job_id = :job_id and attempt = :attempt and settled_by = :worker;
