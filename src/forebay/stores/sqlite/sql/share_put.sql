-- share_put: pending jobs wait behind the gate of their share.
update forebay_jobs
set gate = :gate
where seq in (select value from json_each(:seqs))
  and state = 'pending';
