-- sequences_unassigned: sequences in which jobs have no position yet.
-- Index: sequences_job.
select distinct name from forebay.sequences where job_id = any(%(ids)b::text[]) and position is null;
