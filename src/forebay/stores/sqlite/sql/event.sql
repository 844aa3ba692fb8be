-- event: one rare thing that happened; a job has at most :most of them. Relies on index forebay_events_job.
insert into forebay_events (kind, at, job_id, queue, attempt, actor, detail, changes)
select :kind, :at, :job_id, :queue, :attempt, :actor, :detail, :changes
where :job_id is null
   or (select count(*) from forebay_events where job_id = :job_id and kind <> 'deleted') < :most;
