-- position_ahead: how many pending jobs of one class go before a place, up to :most.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank).
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
