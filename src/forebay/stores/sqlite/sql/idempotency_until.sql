-- idempotency_until: until when a job holds its once key.
select held_until from forebay_job_keys where queue = :queue and kind = 'idempotency' and key = :key and job_id = :job_id;
