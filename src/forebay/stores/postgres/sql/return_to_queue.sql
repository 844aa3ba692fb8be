-- return_to_queue: make a running job wait again: returned, snoozed, or to be retried.
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
