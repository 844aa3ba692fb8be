-- throughput: number of jobs of a queue completed since :since, at most the last :limit, and when the first
-- of these was.
-- Index: forebay_finished_queue (queue, finished_at).
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
