-- note_lines_trim: of log lines the last :most stay.
delete from forebay_notes
where seq = :seq
  and kind = 'line'
  and number < (
    select number
    from forebay_notes
    where seq = :seq and kind = 'line'
    order by number desc
    limit 1 offset :most - 1
  );
