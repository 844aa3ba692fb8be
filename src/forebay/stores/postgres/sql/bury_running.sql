-- bury_running: an operator takes the lease away. No worker is on the dead job, so that the holder's settlement
-- is refused and not taken for a repeated one.
with held as (
  delete from forebay.leases where id = %(job_id)s returning id, attempt, started_at, cancel_reason
),
gone as (
  delete from forebay.jobs where id = any(array(select id from held)) returning *
),
listed as (
  insert into forebay.aftermaths (parent, aftermath)
  select id, 'dead' from gone where has_dependants
  returning number
)
insert into forebay.dead (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, capped, started_at, deadline_at, expires_at, unique_key, cancel_reason, errors,
  finished_at, reason, payload
)
select
  g.id, g.seq, g.queue, g.task, 'dead', g.priority, g.options, h.attempt, g.failures, g.crashes, g.created_at,
  %(now)s, g.ready_at, g.run_at, g.rank, g.capped, h.started_at, g.deadline_at, g.expires_at, g.unique_key,
  h.cancel_reason, g.errors, %(now)s, %(reason)s::text, g.payload
from gone g
cross join held h
returning queue, unique_key, attempt, (select array_agg(number) from listed);
