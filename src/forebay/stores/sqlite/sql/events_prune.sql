-- events_prune: events are kept for 90 days. Relies on index forebay_events_at.
delete from forebay_events
where number in (
  select number
  from forebay_events
  where at <= :before
  order by at
  limit :limit
);
