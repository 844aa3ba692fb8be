-- events_remove: a job's events go with it. That it was deleted stays in the audit log.
delete from forebay_events where job_id = :job_id and kind <> 'deleted';
