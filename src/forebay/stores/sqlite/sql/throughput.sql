-- throughput: how many jobs of a queue were completed since :since, the last :limit of them, and when the first of these was.
-- Relies on index forebay_finished_queue (queue, finished_at).
select count(*), min(finished_at)
from (
  select finished_at
  from forebay_finished
  where queue = :queue
    and finished_at > :since
    and state = 'completed'
  order by finished_at desc
  limit :limit
);
