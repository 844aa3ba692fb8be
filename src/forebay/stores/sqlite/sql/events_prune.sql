-- events_prune: events are kept for 90 days. Relies on index forebay_events_at.
delete from forebay_events
where id in (
  select id
  from forebay_events
  where occurred_at <= :before
  order by occurred_at
  limit :limit
);
