-- progress_any: whether any job has notes at all; where nobody writes them, forgetting jobs pays for this alone.
select 1 from forebay_job_progress limit 1;
