-- progress_log_trim: of log lines the last :most stay.
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
