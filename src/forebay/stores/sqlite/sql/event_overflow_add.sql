-- event_overflow_add: count one more omitted event, on the row that stands for all of them.
update forebay_events
set detail = cast(cast(detail as integer) + 1 as text),
    occurred_at = :occurred_at
where job_id = :job_id
  and kind = 'events_omitted';
