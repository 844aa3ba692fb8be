-- note_lines_trim: of log lines the last ones stay.
delete from forebay.notes
where job_id = %(job_id)s
  and kind = 'line'
  and number < (
    select number
    from forebay.notes
    where job_id = %(job_id)s and kind = 'line'
    order by number desc
    limit 1 offset %(most)s - 1
  );
