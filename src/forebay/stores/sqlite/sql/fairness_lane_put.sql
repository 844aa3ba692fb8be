-- fairness_lane_put: move pending jobs to the lane of their fairness key.
update forebay_jobs
set lane = :lane
where seq in (select value from json_each(:seqs))
  and state = 'pending';
