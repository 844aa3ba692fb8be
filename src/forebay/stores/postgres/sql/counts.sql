-- counts: the counters of all queues with what was not folded into them yet. Below the floor all is folded.
select queue, state, sum(jobs)::bigint
from (
  select queue, state, jobs from forebay.queue_counts
  union all
  select queue, state, jobs
  from forebay.queue_count_deltas
  where id >= coalesce((select scan_position from forebay.maintenance where name = 'low-water mark of counts'), 0)
) as c
group by queue, state;
