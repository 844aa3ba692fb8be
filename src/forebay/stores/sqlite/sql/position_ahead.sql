-- position_ahead: number of pending jobs of one class ahead of a rank, up to :limit.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
select count(*)
from (
  select 1
  from forebay_jobs
  where state = 'pending'
    and lane is null
    and queue = :queue
    and age_capped = :age_capped
    and rank <= :rank
    and (rank < :rank or seq < :seq)
  limit :limit
);
