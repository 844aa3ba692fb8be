-- keys_free: release unique keys, but only those that name these very jobs.
-- Locks: in the order given, which is the same for every transaction.
-- Cost: one probe per key, see `delayed_take_due`.
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
