-- queue_snapshots: the counters of all queues as in `counts`, and without a state the number of removed jobs.
-- Guarantees: one statement, so both are of the same moment. A job pruned between two statements would count twice.
select queue, state, sum(jobs)::bigint
from (
  select queue, state, jobs from forebay.queue_counts
  union all
  select queue, state, jobs
  from forebay.queue_count_deltas
  where id >= coalesce((select scan_position from forebay.maintenance where name = 'low-water mark of counts'), 0)
  union all
  select queue, null, jobs from forebay.removed_counts
) as c
group by queue, state;
