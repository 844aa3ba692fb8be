-- blocked_among: the blocked ones of these jobs: how many edges block each, whether its sequence does, and
-- the values to release it.
-- :children is an object with the id of each by the seq in it. A job without a delay has no time to wait for
-- (see `due_on_release`).
select
  job.unmet,
  job.id,
  exists (
    select 1
    from forebay_sequences as own
    where own.job_id = one.value
      and exists (select 1 from forebay_sequences as f where f.name = own.name and f.position < own.position)
  ),
  job.seq, queue, priority, failures, deadline_at,
  case when run_at > max(created_at, updated_at) then run_at else 0 end,
  options
from json_each(:children) as one cross join forebay_jobs as job
where job.seq = one.key
  and job.id = one.value
  and job.state = 'blocked';
