-- name: update_job: update a waiting job whose narrow row this transaction has removed, and insert a new one.
-- Guarantees: the new row makes a claim that has just read the old one retry.
with moved as (
  update forebay.jobs
  set queue = %(queue)s,
      priority = %(priority)s,
      options = %(options)s::text,
      run_at = %(run_at)s,
      ready_at = %(ready_at)s,
      rank = %(rank)s,
      age_capped = %(age_capped)s,
      rescore_at = case when %(has_rank)s::boolean then %(rescore_at)s::bigint else rescore_at end,
      updated_at = %(now)s
  where id = %(id)s
  returning id, queue, seq, rank, age_capped, run_at, expires_at
),
-- include: place_moved_job

-- name: update_running: store new metadata of a job whose lease this transaction has locked.
with marked as (
  update forebay.leases set updated_at = %(now)s where id = %(id)s
)
update forebay.jobs set options = %(options)s::text, updated_at = %(now)s where id = %(id)s;

-- name: cancel_request: store the request to stop a running job; an earlier request stays. The lease is locked.
update forebay.leases
set cancel_reason = %(reason)s
where id = %(job_id)s and cancel_reason is null
returning queue;

-- name: cancelled_lock: lock those of these jobs that are cancelled; no other transaction revives them before this one
-- ends.
-- Locks: rows of `finished`, by id.
select id, state
from forebay.finished
where id = any(%(ids)b::text[]) and state = 'cancelled'
order by id
for key share;

-- name: finish_waiting: cancel jobs whose narrow rows this transaction has removed.
with removed as (
  delete from forebay.jobs where id = any(%(ids)b::text[]) returning *
),
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, 'cancelled' from removed where has_dependants
  returning id
)
insert into forebay.finished (
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, errors,
  finished_at, reason, payload
)
select
  id, seq, queue, task, 'cancelled', priority, options, attempt, failures, crashes, created_at, %(now)s,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, errors,
  %(now)s, %(reason)s::text, payload
from removed
returning id, queue, unique_key, (select array_agg(id) from outbox);

-- name: mark_dead_running: force-cancel a running job: delete its lease and move it to the dead letters.
-- Guarantees: the dead job names no worker, so the settlement of the holder is refused and does not count as a repeated
-- one.
with ended_leases as (
  delete from forebay.leases where id = %(job_id)s returning id, attempt, started_at, cancel_reason
),
removed as (
  delete from forebay.jobs where id = any(array(select id from ended_leases)) returning *
),
-- include: outbox_of_dead
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

-- name: mark_dead_waiting: move jobs whose narrow rows this transaction has removed to the dead letters.
with removed as (
  delete from forebay.jobs where id = any(%(ids)b::text[]) returning *
),
-- include: outbox_of_dead
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

-- name: revive: insert a job that was just removed from the dead or finished ones as a live one, under its own seq.
-- `attempt` keeps growing; an expiry that has passed is dropped.
with new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, attempt, failures, crashes, created_at, updated_at, ready_at,
    run_at, rank, age_capped, rescore_at, deadline_at, expires_at, unique_key, errors, payload,
    has_dependants
  )
  values (
    %(id)s, %(seq)s, %(queue)s, %(task)s, %(priority)s, %(options)s, %(attempt)s, %(failures)s, %(crashes)s,
    %(created_at)s, %(now)s, %(due_at)s, %(due_at)s, %(rank)s, %(age_capped)s, %(rescore_at)s, %(deadline_at)s,
    %(expires_at)s, %(unique_key)s, %(errors)s, %(payload)s,
    exists (select 1 from forebay.dependencies where parent_id = %(id)s)
      or exists (select 1 from forebay.sequences where job_id = %(id)s)
  )
  returning id, queue, seq, rank, age_capped, run_at, expires_at
),
-- include: place_new_job
insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
select id, queue, run_at, seq, 'scheduled', expires_at from new where %(state)s::text = 'scheduled';

-- name: remove_dead: delete one dead job. One caller gets the row.
delete from forebay.dead
where id = %(id)s
returning finished_at, attempt, options, errors;

-- name: remove_finished: delete one finished job. One caller gets the row.
delete from forebay.finished
where id = %(id)s
returning finished_at, attempt, options, errors;

-- name: remove_live: delete a job whose narrow row this transaction has removed.
delete from forebay.jobs where id = %(id)s returning queue, unique_key;

-- name: waiting_remove: delete the narrow row of a job that this transaction has locked; its rank is probed as in
-- `ready_lock`.
with r as (
  delete from forebay.ready
  where ctid = any(array(
    select ctid
    from forebay.ready
    where queue = %(queue)s
      and age_capped = %(age_capped)s
      and (rank, seq) >= (%(rank)s, %(seq)s)
      and (rank, seq) <= (%(rank)s, %(seq)s)
    order by rank, seq
  ))
),
b as (
  delete from forebay.blocked where id = %(id)s
),
g as (
  delete from forebay.side_lanes where id = %(id)s
)
delete from forebay.delayed where id = %(id)s;

-- fragment: place_new_job: narrow row of a job that is blocked or pending; `delayed` is left to the statement.
blocked_rows as (
  insert into forebay.blocked (id, queue, run_at, seq, unmet, expires_at)
  select id, queue, run_at, seq, %(unmet)s, expires_at from new where %(state)s::text = 'blocked'
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select queue, age_capped, rank, seq, id, expires_at from new
  where %(state)s::text = 'pending' and %(lane)s::text is null
),
parked as (
  insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
  select id, queue, %(lane)s::text, age_capped, rank, seq, expires_at from new
  where %(state)s::text = 'pending' and %(lane)s::text is not null
)

-- fragment: outbox_of_dead: outbox entries of dead jobs.
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, 'dead' from removed where has_dependants
  returning id
)
