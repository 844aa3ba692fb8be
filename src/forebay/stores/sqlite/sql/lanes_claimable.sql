-- lanes_claimable: behind which gates of a queue jobs wait that somebody can pass, by one probe for each of them and one more.
-- Those of limits come before all others, and are stepped over.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank).
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
