-- mark_dead_running: force-cancel a running job: delete its lease and move it to the dead letters.
-- Guarantees: the dead job names no worker, so the settlement of the holder is refused and does not count as a repeated
-- one.
with ended_leases as (
  delete from forebay.leases where id = %(job_id)s returning id, attempt, started_at, cancel_reason
),
removed as (
  delete from forebay.jobs where id = any(array(select id from ended_leases)) returning *
),
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, 'dead' from removed where has_dependants
  returning id
)
insert into forebay.dead (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, started_at, deadline_at, expires_at, unique_key, cancel_reason, errors,
  finished_at, reason, payload
)
select
  g.id, g.seq, g.queue, g.task, 'dead', g.priority, g.options, h.attempt, g.failures, g.crashes, g.created_at,
  %(now)s, g.ready_at, g.run_at, g.rank, g.age_capped, h.started_at, g.deadline_at, g.expires_at, g.unique_key,
  h.cancel_reason, g.errors, %(now)s, %(reason)s::text, g.payload
from removed g
cross join ended_leases h
returning queue, unique_key, attempt, (select array_agg(id) from outbox);
