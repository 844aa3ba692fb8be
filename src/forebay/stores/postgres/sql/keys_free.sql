-- keys_free: let go of unique keys, but only of those that name these very jobs.
delete from forebay.keys k
using unnest(%(queues)b::text[], %(keys)b::text[], %(job_ids)b::text[]) as w (queue, key, job_id)
where k.queue = w.queue
  and k.kind = 'unique'
  and k.key = w.key
  and k.job_id = w.job_id;
