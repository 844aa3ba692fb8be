-- fairness_key_remove: remove a fairness key without pending jobs. Index: forebay_jobs_ready (queue, lane,
-- ...).
delete from forebay_fairness_keys
where queue = :queue
  and fairness_key = :fairness_key
  and not exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane);
