-- progress_log_trim: keep the last :max_lines log lines.
delete from forebay_job_progress
where seq = :seq
  and kind = 'log'
  and position < (
    select position
    from forebay_job_progress
    where seq = :seq and kind = 'log'
    order by position desc
    limit 1 offset :max_lines - 1
  );
