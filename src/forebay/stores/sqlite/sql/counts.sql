-- counts: counters of all queues, with the jobs inserted since the last count.
select queue, state, sum(jobs)
from (
  select queue, state, jobs from forebay_queue_counts where queue <> ''
  union all
  select queue, state, count(*)
  from forebay_jobs
  where seq > coalesce((select jobs from forebay_queue_counts where queue = '' and state = 'counted'), 0)
  group by queue, state
)
group by queue, state;
