-- lanes_claimable: lanes of a queue that have jobs and that a worker may accept, by one probe for each and
-- one more. Fairness and limit lanes sort before all others and are skipped.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
with recursive lanes (lane) as (
  select min(lane) from forebay_jobs where state = 'pending' and queue = :queue and lane > 'l~'
  union all
  select (
    select min(lane) from forebay_jobs where state = 'pending' and queue = :queue and lane > lanes.lane
  )
  from lanes
  where lanes.lane is not null
  limit :limit
)
select lane from lanes where lane is not null;
