-- fairness_keys_prune: remove fairness keys without pending jobs, of queues that no worker claims from.
delete from forebay_fairness_keys as s
where not exists (
  select 1 from forebay_jobs where state = 'pending' and queue = s.queue and lane = 'fairness:' || s.fairness_key
);
