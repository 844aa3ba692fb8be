-- throughput: count the last `limit` completed jobs of a queue since a time, with the first time among them.
-- Index: finished_queue (queue, finished_at, seq).
select count(*), min(finished_at)
from (
  select finished_at
  from forebay.finished
  where queue = %(queue)s and finished_at > %(since)s and state = 'completed'
  order by finished_at desc
  limit %(limit)s
) as p;
