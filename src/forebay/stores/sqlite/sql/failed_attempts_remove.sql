-- failed_attempts_remove: a job's bad attempts go with it.
delete from forebay_failed_attempts where job_id = :job_id;
