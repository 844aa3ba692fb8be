-- import_live: store a waiting job of another store. Its id is reserved (`import_reserve_ids`).
with new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, attempt, failures, crashes, created_at, updated_at, ready_at,
    run_at, rank, age_capped, rescore_at, worker, started_at, deadline_at, expires_at, unique_key, errors, payload,
    has_dependants
  )
  values (
    %(id)s, %(seq)s, %(queue)s, %(task)s, %(priority)s, %(options)s, %(attempt)s, %(failures)s, %(crashes)s,
    %(created_at)s, %(updated_at)s, %(ready_at)s, %(run_at)s, %(rank)s, %(age_capped)s, %(rescore_at)s, %(worker)s,
    %(started_at)s, %(deadline_at)s, %(expires_at)s, %(unique_key)s, %(errors)s, %(payload)s,
    exists (select 1 from forebay.dependencies where parent_id = %(id)s)
      or exists (select 1 from forebay.sequences where job_id = %(id)s)
  )
  returning id, queue, seq, rank, age_capped, run_at, expires_at
),
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
insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
select id, queue, run_at, seq, %(state)s::text, expires_at from new
where %(state)s::text = 'scheduled' or %(state)s::text = 'retrying';
