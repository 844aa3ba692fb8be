-- keys_free: let go of unique keys, but only of those that name these very jobs; in the order in which they come,
-- which is the same for everybody. Each key is looked up by itself, for the reason that `due` gives.
delete from forebay.job_keys
where ctid = any(array(
  select k.ctid
  from unnest(%(queues)b::text[], %(keys)b::text[], %(job_ids)b::text[]) as w (queue, key, job_id)
  cross join lateral (
    select ctid
    from forebay.job_keys
    where queue = w.queue and kind = 'unique' and key = w.key and job_id = w.job_id
    for update
  ) as k
));
