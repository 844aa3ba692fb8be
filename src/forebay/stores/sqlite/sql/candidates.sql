-- candidates: the jobs that `claim` would take of a queue's order or of one of its gates, with what limits go by.
-- Relies on index forebay_jobs_ready, like `claim`.
select seq, lead, id, task, options from (
  select seq, :now - rank as lead, id, task, options
  from forebay_jobs
  where state = 'pending' and gate is :gate and queue = :queue and capped = 0
    and (expires_at is null or expires_at > :now)
  order by rank, seq
  limit :room
)
union all
select * from (
  select seq, :cap_ms - rank as lead, id, task, options
  from forebay_jobs
  where state = 'pending' and gate is :gate and queue = :queue and capped = 1
    and (expires_at is null or expires_at > :now)
  order by rank, seq
  limit :room
);
