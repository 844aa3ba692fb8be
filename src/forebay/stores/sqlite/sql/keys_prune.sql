-- keys_prune: once keys that have run out. Relies on index forebay_keys_until.
delete from forebay_keys
where (queue, kind, key) in (
  select queue, kind, key
  from forebay_keys
  where until is not null
    and until <= :now
  order by until
  limit :limit
);
