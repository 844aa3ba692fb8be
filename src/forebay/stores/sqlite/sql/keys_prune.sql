-- keys_prune: once keys that have run out. Relies on index forebay_keys_until.
delete from forebay_job_keys
where (queue, kind, key) in (
  select queue, kind, key
  from forebay_job_keys
  where held_until is not null
    and held_until <= :now
  order by held_until
  limit :limit
);
