-- lanes_unpark: the first jobs behind a gate go back to the order of their queue.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank).
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
