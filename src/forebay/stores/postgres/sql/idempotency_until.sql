-- idempotency_until: until when a job holds its once key.
select held_until
from forebay.job_keys
where queue = %(queue)s and kind = 'idempotency' and key = %(key)s and job_id = %(job_id)s;
