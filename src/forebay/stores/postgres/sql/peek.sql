-- peek: the next jobs that a claim would take, in order, without locks.
with first as materialized (
  (
    select id, %(now)s - rank as effective_priority, seq
    from forebay.ready
    where queue = %(queue)s and age_capped = false and (expires_at is null or expires_at > %(now)s)
    order by rank, seq
    limit %(limit)s
  )
  union all
  (
    select id, %(cap_ms)s - rank, seq
    from forebay.ready
    where queue = %(queue)s and age_capped = true and (expires_at is null or expires_at > %(now)s)
    order by rank, seq
    limit %(limit)s
  )
  order by 2 desc, 3
  limit %(limit)s
)
select j.id, j.queue, j.task, 'pending', j.priority, j.attempt, j.failures, j.created_at, j.run_at, j.started_at,
  null::bigint, j.worker, null::text, j.options
from first f
join forebay.jobs j on j.id = f.id
order by f.effective_priority desc, f.seq;
