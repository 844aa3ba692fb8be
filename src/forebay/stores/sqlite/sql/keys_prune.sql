-- keys_prune: remove expired idempotency keys. Index: forebay_job_keys_held_until.
delete from forebay_job_keys
where (queue, kind, key) in (
  select queue, kind, key
  from forebay_job_keys
  where held_until is not null
    and held_until <= :now
  order by held_until
  limit :limit
);
