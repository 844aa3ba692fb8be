-- events_prune: delete events older than 90 days.
-- Index: events_occurred_at, from the low-water mark on.
delete from forebay.events
where id = any(array(
  select id
  from forebay.events
  where occurred_at >= %(since)s and occurred_at <= %(before)s
  order by occurred_at
  limit %(limit)s
  for update skip locked
))
returning occurred_at;
