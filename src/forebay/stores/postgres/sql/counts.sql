-- counts: the counters of all queues with the changes that are not folded yet. Below the low-water mark all are folded.
select queue, state, sum(jobs)::bigint
from (
  select queue, state, jobs from forebay.queue_counts
  union all
  select queue, state, jobs
  from forebay.queue_count_deltas
  where id >= coalesce((select scan_position from forebay.maintenance where name = 'low-water mark of counts'), 0)
) as c
group by queue, state;
