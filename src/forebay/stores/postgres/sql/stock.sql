-- stock: the counters of all queues, as in `counts`, and without a state how many jobs are gone. In one statement, so
-- that both are of the same moment: a job that is pruned between two of them would have come twice.
select queue, state, sum(jobs)::bigint
from (
  select queue, state, jobs from forebay.counts
  union all
  select queue, state, jobs
  from forebay.count_deltas
  where number >= coalesce((select walked_to from forebay.duties where name = 'floor of counts'), 0)
  union all
  select queue, null, jobs from forebay.removed
) as c
group by queue, state;
