-- lanes_among: those of these lanes of a queue that have jobs, by one probe for each.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
select value
from json_each(:lanes)
where exists (
  select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = value
)
order by value;
