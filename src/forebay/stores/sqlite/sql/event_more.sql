-- event_more: count one more event that is not kept, on the row that stands for all of them.
update forebay_events
set detail = cast(cast(detail as integer) + 1 as text),
    at = :at
where job_id = :job_id
  and kind = 'more';
