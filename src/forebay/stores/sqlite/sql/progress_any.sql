-- progress_any: whether any job has progress: without any, removing jobs costs only this statement.
select 1 from forebay_job_progress limit 1;
