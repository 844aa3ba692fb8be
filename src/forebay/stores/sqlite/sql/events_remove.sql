-- events_remove: a job's events go with it. The audit log stays.
delete from forebay_events where job_id = :job_id;
