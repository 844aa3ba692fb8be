-- counts: the counters of all queues with what was not folded into them yet. Below the floor all is folded.
select queue, state, sum(jobs)::bigint
from (
  select queue, state, jobs from forebay.counts
  union all
  select queue, state, jobs
  from forebay.count_deltas
  where number >= coalesce((select walked_to from forebay.duties where name = 'floor of counts'), 0)
) as c
group by queue, state;
