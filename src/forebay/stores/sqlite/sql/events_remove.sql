-- events_remove: a job's events go with it.
delete from forebay_events where job_id = :job_id;
