-- name: renew: extend one lease, never back and never past its longest extension.
-- Guarantees: only while the lease is held (state, attempt, worker). Damaged options count as none.
update forebay_jobs
set lease_expires_at = max(
  lease_expires_at,
  min(
    :now + coalesce(
      :lease_ms,
      iif(json_valid(options), options, null) ->> 'lease_ms',
      (select settings ->> 'lease_ms' from forebay_queues where name = forebay_jobs.queue)
    ),
    started_at + coalesce(iif(json_valid(options), options, null) ->> 'extension_ms', :extension_ms)
  )
)
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running'
  and started_at + coalesce(iif(json_valid(options), options, null) ->> 'extension_ms', :extension_ms) > :now;

-- name: lease_holder: state of a job and holder of its newest attempt, to tell why a write was refused.
select queue, state, attempt, worker, run_at, started_at, updated_at from forebay_all_jobs where seq = :seq and id = :job_id;

-- name: leases_of: every lease of a worker. Scans all running jobs by the index on lease ends: it runs only after a
-- lost answer, and an index by worker would cost every claim.
select id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors
from forebay_jobs
where state = 'running'
  and worker = :worker
order by id;

-- name: leases_of_dead_workers: leases of workers that are known to be dead (:dead is a JSON array), earliest end
-- first.
-- Scans all running jobs by the index on lease ends; it runs only after the death of a worker.
select seq, attempt, worker
from forebay_jobs
where state = 'running'
  and worker in (select value from json_each(:dead))
order by lease_expires_at, seq
limit :limit;

-- name: expired_lease_count: number of running jobs of a queue, or of all, whose lease has ended.
-- Index: forebay_jobs_lease: ended leases are at its head, and the next sweep takes them over.
select count(*)
from forebay_jobs
where state = 'running'
  and lease_expires_at <= :now
  and (:queue is null or queue = :queue);

-- name: expired_leases: leases that have ended, earliest first.
-- Index: forebay_jobs_lease (lease_expires_at), a range from its head.
select seq, attempt, worker
from forebay_jobs
where state = 'running'
  and lease_expires_at <= :now
order by lease_expires_at, seq
limit :limit;

-- name: sweep: take over leases that have ended, as leases of the sweeper on the same attempt.
-- Guarantees: later writes of the old holder are refused, since the worker differs; the first holder is
-- recorded for the history. Of a renewal and a sweep at the same instant, one has the write lock first and
-- the other sees its commit.
-- Index: primary key.
update forebay_jobs
set swept_from = coalesce(swept_from, worker),
    worker = :sweeper,
    lease_expires_at = :now + :lease_ms,
    updated_at = :now
where seq = :seq
  and state = 'running'
  and worker = :worker
  and attempt = :attempt
returning id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
  updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at,
  expires_at, unique_key, cancel_reason, errors;

-- name: count_unstarted: record how many attempts of a running job never began, before it goes back to waiting or
-- ends.
-- Guarantees: only for the lease holder, which `lease_details` has checked in this write transaction. Other
-- members stay: they may come from a newer program. A damaged text stays, too; readers show it as it is.
-- Index: primary key.
update forebay_jobs
set options = json_set(coalesce(options, '{}'), '$.unstarted', :unstarted)
where seq = :seq
  and (options is null or json_valid(options));

-- name: pending_cancels: running jobs of this worker with a stored request to cancel.
-- Index: forebay_jobs_cancel (worker), empty for nearly all workers.
select id, cancel_reason
from forebay_jobs
where cancel_reason is not null
  and state = 'running'
  and worker = :worker
order by id;
