-- counts: the counters of all queues with what was not folded into them yet.
select queue, state, sum(jobs)::bigint
from (
  select queue, state, jobs from forebay.counts
  union all
  select queue, state, jobs from forebay.count_deltas
) as c
group by queue, state;
