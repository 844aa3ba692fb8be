-- name: lease_details: lock leases, with the columns of their jobs that a settlement needs.
-- Locks: leases by id, as everywhere, so that two batches never wait for each other.
-- Cost: no join with `jobs`, see `delayed_take_due`.
select l.id, l.attempt, l.worker, l.started_at, l.swept_from, l.cancel_reason, j.queue, j.errors, j.ready_at,
  j.priority, j.deadline_at, j.rank, j.age_capped
from forebay.leases l
cross join lateral (
  select queue, errors, ready_at, priority, deadline_at, rank, age_capped from forebay.jobs where id = l.id offset 0
) as j
where l.id = any(%(ids)b::text[])
order by l.id
for update of l;

-- name: leases_lock_available: lock leases of a worker.
-- Locks: by id, SKIP LOCKED.
select id, attempt
from forebay.leases
where id = any(%(ids)b::text[])
  and worker = %(worker)s
  and id || ':' || attempt = any(%(tokens)b::text[])
order by id
for update skip locked;

-- name: leases_present: committed leases of a worker, locked or not; with a time only those that have not expired then.
select id, attempt
from forebay.leases
where id = any(%(ids)b::text[])
  and worker = %(worker)s
  and id || ':' || attempt = any(%(tokens)b::text[])
  and (%(now)s::bigint is null or least(lease_limit_at, lease_expires_at) > %(now)s::bigint);

-- name: complete: move successful jobs to `finished`.
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

-- name: completed_among: those of these jobs that have completed. That never changes.
select id, state from forebay.finished where id = any(%(ids)b::text[]) and state = 'completed';

-- name: finish: move a running job that was cancelled, or that completed in a batch of other outcomes, to `finished`.
-- Guarantees: only while the lease is held (attempt, worker).
-- include: end_attempt
insert into forebay.finished (
  -- include: final_row

-- name: mark_dead: move a running job that is not tried again to the dead letters.
-- Guarantees: only while the lease is held (attempt, worker).
-- include: end_attempt
insert into forebay.dead (
  -- include: final_row

-- name: return_to_queue: make a running job wait again: returned, snoozed, or to be retried.
-- Guarantees: only while the lease is held (attempt, worker). `ready_at` stays. The worker stays on the row, so that
-- its repeated settlement is recognised. A new row in `ready` has a new `inserted_xid`, so claim cursors beyond it see
-- it.
with ended_leases as (
  delete from forebay.leases
  where id = %(job_id)s and attempt = %(attempt)s and worker = %(worker)s
  returning id, attempt, worker, started_at
),
moved as (
  update forebay.jobs j
  set attempt = h.attempt,
      worker = h.worker,
      started_at = h.started_at,
      failures = %(failures)s,
      crashes = %(crashes)s,
      run_at = %(run_at)s,
      rank = %(rank)s,
      age_capped = %(age_capped)s,
      rescore_at = %(rescore_at)s::bigint,
      errors = coalesce(%(errors)s::text, j.errors),
      updated_at = %(now)s
  from ended_leases h
  where j.id = %(job_id)s
  returning j.id, j.queue, j.seq, j.rank, j.age_capped, j.run_at, j.expires_at
),
-- include: place_moved_job

-- name: now_completing: what `now` does, in a caller transaction that completes a job. It takes the advisory lock of
-- the job until that ends. So other transactions see it (`ids_busy`, `parents_lock`) and need not wait.
select set_config('forebay_tx.now', forebay.now_ms()::text, true)::bigint,
  pg_try_advisory_xact_lock(hashtextextended('forebay.jobs ' || %(id)s::text, 0));

-- fragment: end_attempt: delete a lease and its job, under the whole token, and give its end to the outbox.
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

-- fragment: final_row: the ended job as a row of `finished` or `dead`; returns its queue, unique key and outbox entry.
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

-- fragment: place_moved_job: narrow row of a job that is pending; `delayed` has the others.
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select queue, age_capped, rank, seq, id, expires_at
  from moved
  where %(state)s::text = 'pending' and %(lane)s::text is null
),
parked as (
  insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
  select id, queue, %(lane)s::text, age_capped, rank, seq, expires_at
  from moved
  where %(state)s::text = 'pending' and %(lane)s::text is not null
)
insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
select id, queue, run_at, seq, %(state)s::text, expires_at
from moved
where %(state)s::text <> 'pending';
