-- keys_prune: once keys that have run out. Relies on index keys_until, from the floor on.
delete from forebay.keys
where ctid = any(array(
  select ctid
  from forebay.keys
  where until is not null and until >= %(since)s and until <= %(before)s
  order by until
  limit %(limit)s
  for update skip locked
))
returning until;
