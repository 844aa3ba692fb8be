-- mark_dead_waiting: move jobs whose narrow rows this transaction has removed to the dead letters.
with removed as (
  delete from forebay.jobs where id = any(%(ids)b::text[]) returning *
),
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, 'dead' from removed where has_dependants
  returning id
)
insert into forebay.dead (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, errors,
  finished_at, reason, payload
)
select
  id, seq, queue, task, 'dead', priority, options, attempt, failures, crashes, created_at, %(now)s,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, errors,
  %(now)s, %(reason)s::text, payload
from removed
returning id, queue, unique_key, (select array_agg(id) from outbox);
