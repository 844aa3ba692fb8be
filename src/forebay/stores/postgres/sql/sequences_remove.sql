-- sequences_remove: remove those of these jobs that are not live any more from their sequences; answers their
-- positions. A job that was revived meanwhile stays.
delete from forebay.sequences s
where s.job_id = any(%(ids)b::text[])
  -- The offset keeps this from becoming a join with all jobs.
  and not exists (select 1 from forebay.jobs j where j.id = s.job_id offset 0)
returning s.name, s.position;
