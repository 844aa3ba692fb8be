-- idempotency_until: the time until which a job holds its idempotency key.
select held_until
from forebay.job_keys
where queue = %(queue)s and kind = 'idempotency' and key = %(key)s and job_id = %(job_id)s;
