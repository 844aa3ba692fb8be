-- throughput: how many jobs of a queue were completed since a time, the last `most` of them, and when the first of these was.
-- Relies on index finished_queue (queue, finished_at, seq).
select count(*), min(finished_at)
from (
  select finished_at
  from forebay.finished
  where queue = %(queue)s and finished_at > %(since)s and state = 'completed'
  order by finished_at desc
  limit %(limit)s
) as p;
