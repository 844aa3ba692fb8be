-- hold: put a pending job behind a gate, out of the order of its queue.
update forebay_jobs
set gate = :gate,
    updated_at = :now
where seq = :seq
  and state = 'pending';
