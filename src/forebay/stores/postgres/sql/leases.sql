-- name: renew: move lease ends forward, never back and never past their limit.
-- Guarantees: only while the lease is held (attempt, worker).
-- Locks: by id, SKIP LOCKED, since one job in the transaction of its task would hold up all the others.
with locked as materialized (
  select id
  from forebay.leases
  where id = any(%(ids)b::text[])
    and worker = %(worker)s
    and id || ':' || attempt = any(%(tokens)b::text[])
  order by id
  for update skip locked
)
update forebay.leases l
set lease_expires_at = greatest(
  l.lease_expires_at,
  least(
    %(now)s + coalesce(
      %(lease_ms)s::bigint,
      l.lease_ms,
      (select (q.settings::json ->> 'lease_ms')::bigint from forebay.queues q where q.name = l.queue)
    ),
    l.lease_limit_at
  )
)
where l.id = any(array(select id from locked))
  and l.lease_limit_at > %(now)s
returning l.id, l.attempt;

-- name: lease_holder: state and last worker of a job, to name the reason of a lease refusal.
select queue, state, attempt, worker, run_at, started_at, updated_at from forebay.all_jobs where id = %(job_id)s;

-- name: leases_lock: lock a running job; no row if another transaction holds it.
select 1 from forebay.leases where id = %(id)s for update skip locked;

-- name: leases_of: every lease of a worker.
-- Cost: scans all running jobs. It runs only after a response was lost, and an index by worker would cost every claim.
select id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors
from forebay.live_jobs
where id = any(array(select id from forebay.leases where worker = %(worker)s))
order by id;

-- name: expired_leases: lock leases that have expired, or whose workers are known to be dead; expired ones first, by
-- their expiry.
-- Locks: SKIP LOCKED, so a lease that is just being settled or renewed is passed over.
-- Index: leases_expires, from the low-water mark on. Leases of dead workers are searched among all running jobs, and
-- only if there are dead workers.
with ended as materialized (
  select id, attempt, worker, lease_expires_at, seq
  from forebay.leases
  where lease_expires_at >= %(since)s and lease_expires_at <= %(now)s and not %(only_dead)s::boolean
  order by lease_expires_at, seq
  limit %(limit)s
  for update skip locked
),
orphaned as materialized (
  select id, attempt, worker, lease_expires_at, seq
  from forebay.leases
  where cardinality(%(dead)b::text[]) > 0 and worker = any(%(dead)b::text[])
  order by lease_expires_at, seq
  limit %(limit)s
  for update skip locked
)
select id, attempt, worker
from (
  select id, attempt, worker, lease_expires_at, seq, 1 as part from ended
  union all
  select id, attempt, worker, lease_expires_at, seq, 2 from orphaned where id <> all(array(select id from ended))
) as l
order by part, lease_expires_at, seq
limit %(limit)s;

-- name: sweep: take over leases that `expired_leases` has locked, as leases of the sweeper on the same attempts.
-- Guarantees: from here on writes of the old holder are refused, since the worker differs. The first holder is kept for
-- the history.
update forebay.leases
set swept_from = coalesce(swept_from, worker),
    worker = %(sweeper)s,
    lease_expires_at = %(now)s + %(lease_ms)s,
    updated_at = %(now)s
where id = any(%(ids)b::text[]);

-- name: swept_jobs: the jobs of leases that this transaction has taken over.
-- Cost: not by the view of all jobs, whose joins would read all other waiting jobs; see `delayed_take_due`.
select j.id, j.seq, j.queue, j.task, 'running', j.payload, j.priority, j.options, l.attempt, j.failures, j.crashes,
  j.created_at, l.updated_at, j.ready_at, j.run_at, j.rank, j.age_capped, null::text as lane, l.worker, l.started_at,
  l.lease_expires_at, j.deadline_at, j.expires_at, j.unique_key, l.cancel_reason, j.errors
from forebay.leases l
cross join lateral (select * from forebay.jobs where id = l.id offset 0) as j
where l.id = any(%(ids)b::text[]);

-- name: count_unstarted: store how many attempts of a running job never began, before the job is returned or settled.
-- Guarantees: only for the holder of the lease, which the caller has locked and compared.
-- Index: primary key. The text is replaced as a whole: jsonb refuses texts with a NUL, which metadata may have.
update forebay.jobs set options = %(options)s::text where id = %(id)s;

-- name: pending_cancels: running jobs of this worker that are to be stopped.
-- Index: leases_cancel (worker), empty for nearly all workers. Not ordered by id: the primary key would seem as good,
-- and all leases would be read.
select id, cancel_reason
from forebay.leases
where worker = %(worker)s and cancel_reason is not null;
