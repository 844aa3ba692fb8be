-- fairness_keys_prune: forget shares that have nothing to run, of queues that nobody claims from.
delete from forebay_fairness_keys as s
where not exists (
  select 1 from forebay_jobs where state = 'pending' and queue = s.queue and lane = 'fair:' || s.fairness_key
);
