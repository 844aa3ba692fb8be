-- key_free: release a unique key, only if it names this very job.
delete from forebay_job_keys
where queue = :queue
  and kind = 'unique'
  and key = :key
  and job_id = :job_id;
