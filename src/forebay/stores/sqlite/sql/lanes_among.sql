-- lanes_among: behind which of these gates of a queue jobs wait, by one probe for each.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank).
select value
from json_each(:lanes)
where exists (
  select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = value
)
order by value;
