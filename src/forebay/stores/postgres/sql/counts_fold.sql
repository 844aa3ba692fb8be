-- counts_fold: bring changes into the counters, so that readers have less to add up.
-- Guarantees: a change is deleted and counted in one statement; one that is not committed yet is left.
with gone as (
  delete from forebay.count_deltas
  where ctid = any(array(
    select ctid from forebay.count_deltas order by number limit %(limit)s for update skip locked
  ))
  returning queue, state, jobs
)
insert into forebay.counts as c (queue, state, jobs)
select queue, state, sum(jobs)
from gone
group by queue, state
order by queue, state
on conflict (queue, state) do update
set jobs = c.jobs + excluded.jobs;
