-- mark_dead: move a running job that is not tried again to the dead letters.
-- Guarantees: only while the lease is held (attempt, worker).
with ended_leases as (
  delete from forebay.leases
  where id = %(job_id)s and attempt = %(attempt)s and worker = %(worker)s
  returning id, attempt, worker, started_at, cancel_reason
),
removed as (
  delete from forebay.jobs where id = any(array(select id from ended_leases)) returning *
),
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, %(state)s::text from removed where has_dependants
  returning id
)
insert into forebay.dead (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select
  g.id, g.seq, g.queue, g.task, %(state)s::text, g.priority, g.options, h.attempt, %(failures)s, %(crashes)s,
  g.created_at, %(now)s, g.ready_at, g.run_at, g.rank, g.age_capped, h.worker, h.started_at, g.deadline_at,
  g.expires_at, g.unique_key, h.cancel_reason, coalesce(%(errors)s::text, g.errors), %(now)s, %(reason)s::text,
  g.payload, %(result)s::bytea
from removed g
cross join ended_leases h
returning queue, unique_key, (select array_agg(id) from outbox);
