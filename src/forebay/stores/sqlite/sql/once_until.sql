-- once_until: until when a job holds its once key.
select until from forebay_keys where queue = :queue and kind = 'once' and key = :key and job_id = :job_id;
