-- key_holder: who holds a key now. A once key that has run out is held by nobody.
select job_id
from forebay_job_keys
where queue = :queue
  and kind = :kind
  and key = :key
  and (held_until is null or held_until > :now);
