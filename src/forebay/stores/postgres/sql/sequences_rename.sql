-- sequences_rename: give those of these jobs that are not live any more other ids in their sequences; answers them.
-- Index: sequences_job.
update forebay.sequences s
set job_id = (%(new_ids)b::text[])[array_position(%(ids)b::text[], s.job_id)]
where s.job_id = any(%(ids)b::text[])
  -- The offset keeps this from becoming a join with all jobs.
  and not exists (select 1 from forebay.jobs j where j.id = s.job_id offset 0)
returning s.job_id;
