-- park: move a pending job from the main order to a lane.
update forebay_jobs
set lane = :lane,
    updated_at = :now
where seq = :seq
  and state = 'pending';
