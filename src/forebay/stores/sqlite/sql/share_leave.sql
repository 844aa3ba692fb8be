-- share_leave: forget a share that has nothing to run. Relies on index forebay_jobs_ready (queue, gate, ...).
delete from forebay_shares
where queue = :queue
  and share = :share
  and not exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and gate = :gate);
