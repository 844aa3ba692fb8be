-- sequences_remove: those of these jobs that do not live any more are out of their sequences; which numbers they had. One
-- that was revived meanwhile stays.
delete from forebay.sequences s
where s.job_id = any(%(ids)b::text[])
  -- The offset keeps it from becoming a join with all jobs.
  and not exists (select 1 from forebay.jobs j where j.id = s.job_id offset 0)
returning s.name, s.position;
