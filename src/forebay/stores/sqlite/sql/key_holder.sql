-- key_holder: current holder of a key. An expired idempotency key has no holder.
select job_id
from forebay_job_keys
where queue = :queue
  and kind = :kind
  and key = :key
  and (held_until is null or held_until > :now);
