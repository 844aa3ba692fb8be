-- shares_prune: forget shares that have nothing to run, of queues that nobody claims from.
delete from forebay_shares as s
where not exists (
  select 1 from forebay_jobs where state = 'pending' and queue = s.queue and gate = 'fair:' || s.share
);
