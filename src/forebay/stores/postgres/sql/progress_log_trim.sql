-- progress_log_trim: delete all but the last log lines of a job.
delete from forebay.job_progress
where job_id = %(job_id)s
  and kind = 'log'
  and position < (
    select position
    from forebay.job_progress
    where job_id = %(job_id)s and kind = 'log'
    order by position desc
    limit 1 offset %(max_lines)s - 1
  );
