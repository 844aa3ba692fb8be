-- keys_prune: delete expired idempotency keys.
-- Index: job_keys_held_until, from the low-water mark on.
delete from forebay.job_keys
where ctid = any(array(
  select ctid
  from forebay.job_keys
  where held_until is not null and held_until >= %(since)s and held_until <= %(before)s
  order by held_until
  limit %(limit)s
  for update skip locked
))
returning held_until;
