-- events_prune: remove events past their retention of 90 days. Index: forebay_events_occurred_at.
delete from forebay_events
where id in (
  select id
  from forebay_events
  where occurred_at <= :before
  order by occurred_at
  limit :limit
);
