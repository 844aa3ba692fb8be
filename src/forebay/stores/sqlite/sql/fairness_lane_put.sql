-- fairness_lane_put: pending jobs wait behind the gate of their share.
update forebay_jobs
set lane = :lane
where seq in (select value from json_each(:seqs))
  and state = 'pending';
