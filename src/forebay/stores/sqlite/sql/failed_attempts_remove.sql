-- failed_attempts_remove: remove the failed attempts of a removed job.
delete from forebay_failed_attempts where job_id = :job_id;
