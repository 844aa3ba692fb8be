-- attempt_of: whether this worker has already ended this attempt badly.
select 1 from forebay_attempts where job_id = :job_id and attempt = :attempt and worker = :worker;
