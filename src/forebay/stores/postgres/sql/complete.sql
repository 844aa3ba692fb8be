-- complete: move successful jobs to `finished`.
-- Guarantees: only while the lease is held (attempt, worker). The transaction that deletes the lease has ended the
-- attempt; a later one waits, rechecks the row and finds it deleted or with another worker.
-- Cost: no join with the leases or the jobs: with an old MVCC snapshot that holds back vacuum, the planner's choice
-- would be wrong. A token is unambiguous, since the attempt comes last and holds no colon.
with ended_leases as (
  delete from forebay.leases
  where id = any(%(ids)b::text[])
    and worker = %(worker)s
    and id || ':' || attempt = any(%(tokens)b::text[])
  returning id, started_at, cancel_reason
),
ends as (
  select array_agg(id) as ids, array_agg(started_at) as started, array_agg(cancel_reason) as reasons from ended_leases
),
removed as (
  delete from forebay.jobs where id = any(array(select id from ended_leases)) returning *
),
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, 'completed' from removed where has_dependants
  returning id
)
insert into forebay.finished (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select
  g.id, g.seq, g.queue, g.task, 'completed', g.priority, g.options, (%(attempts)b::bigint[])[p.i],
  (%(failures)b::bigint[])[p.i], (%(crashes)b::bigint[])[p.i], g.created_at,
  current_setting('forebay_tx.now')::bigint, g.ready_at, g.run_at,
  g.rank, g.age_capped, %(worker)s::text, e.started[p.k], g.deadline_at, g.expires_at, g.unique_key, e.reasons[p.k],
  g.errors, current_setting('forebay_tx.now')::bigint, (%(reasons)b::text[])[p.i], g.payload, (%(results)b::bytea[])[p.i]
from removed g
cross join ends e
cross join lateral (
  select array_position(%(ids)b::text[], g.id) as i, array_position(e.ids, g.id) as k
) as p
returning id, queue, unique_key, (select array_agg(id) from outbox);
