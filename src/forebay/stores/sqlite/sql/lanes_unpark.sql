-- lanes_unpark: move the first jobs of a lane back to the main order of their queue.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
update forebay_jobs
set lane = null,
    updated_at = :now
where seq in (
  select seq
  from forebay_jobs
  where state = 'pending' and queue = :queue and lane = :lane
  order by age_capped, rank, seq
  limit :room
);
