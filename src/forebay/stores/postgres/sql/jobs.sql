-- name: job: jobs by id, in any table.
-- Index: the index on id of each table.
select id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors, finished_at, reason, result
from forebay.all_jobs
where id = any(%(ids)b::text[]);

-- name: jobs_without_payload: jobs by id, in any table, without payload, result and errors. Large values are often
-- stored outside the row and need not be read.
-- Index: the index on id of each table.
select id, seq, queue, task, state, ''::bytea as payload, priority, options, attempt, failures, crashes,
  created_at, updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, null::text as errors, finished_at, reason, null::bytea as result
from forebay.all_jobs
where id = any(%(ids)b::text[]);

-- name: job_states: jobs by id, in any table, without payload and result. Large values are often stored outside the row
-- and need not be read.
-- Index: the index on id of each table.
select id, seq, queue, task, state, ''::bytea as payload, priority, options, attempt, failures, crashes,
  created_at, updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors, finished_at, reason, null::bytea as result
from forebay.all_jobs
where id = any(%(ids)b::text[]);

-- name: states_of_given: what `states` answers, and those of the given ids that a caller transaction is about to write
-- (`ids_lock`); these come without a state.
-- Locks: none is waited for; see `key_holders` for the probe and for the row of nulls.
select id, state from forebay.all_jobs where id = any(%(ids)b::text[])
union all
select n.id, null
from (
  select w.id, hashtextextended('forebay.jobs ' || w.id, 0) as lock_id
  from unnest(%(given_ids)b::text[]) as w (id)
  offset 0
) as n
where not case when pg_try_advisory_lock_shared(n.lock_id) then pg_advisory_unlock_shared(n.lock_id) else false end
union all
select null, null
where not case
    -- include: no_caller_holds_many

-- name: peek: the next jobs that a claim would take, in order, without locks.
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

-- name: position_ahead: count the pending jobs of one class before a rank, up to a limit.
select count(*)
from (
  select 1
  from forebay.ready
  where queue = %(queue)s
    and age_capped = %(age_capped)s
    and (rank, seq) < (%(rank)s, %(seq)s)
  limit %(limit)s
) as a;
