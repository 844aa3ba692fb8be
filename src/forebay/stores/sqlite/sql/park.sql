-- park: put a pending job behind a gate, out of the order of its queue.
update forebay_jobs
set lane = :lane,
    updated_at = :now
where seq = :seq
  and state = 'pending';
