-- fairness_key_remove: forget a share that has nothing to run. Relies on index forebay_jobs_ready (queue, gate, ...).
delete from forebay_fairness_keys
where queue = :queue
  and fairness_key = :fairness_key
  and not exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane);
