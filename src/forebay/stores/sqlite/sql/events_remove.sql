-- events_remove: remove the events of a removed job. The audit log stays.
delete from forebay_events where job_id = :job_id;
