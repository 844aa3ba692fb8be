-- idempotency_until: time until which a job holds its idempotency key.
select held_until from forebay_job_keys where queue = :queue and kind = 'idempotency' and key = :key and job_id = :job_id;
