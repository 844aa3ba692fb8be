-- finish_waiting: jobs whose narrow row this transaction has removed are cancelled.
with gone as (
  delete from forebay.jobs where id = any(%(ids)b::text[]) returning *
),
listed as (
  insert into forebay.aftermaths (parent, aftermath)
  select id, 'cancelled' from gone where has_dependants
  returning number
)
insert into forebay.finished (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, capped, worker, started_at, deadline_at, expires_at, unique_key, errors,
  finished_at, reason, payload
)
select
  id, seq, queue, task, 'cancelled', priority, options, attempt, failures, crashes, created_at, %(now)s,
  ready_at, run_at, rank, capped, worker, started_at, deadline_at, expires_at, unique_key, errors,
  %(now)s, %(reason)s::text, payload
from gone
returning id, queue, unique_key, (select array_agg(number) from listed);
