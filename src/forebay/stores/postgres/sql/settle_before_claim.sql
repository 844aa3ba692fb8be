-- settle_before_claim: settle successes and release their slots under limits; the first part of a call under limits, in
-- the same transaction as `limits_lock` and `claim_limited`, which follow it.
-- Guards and methods are those of `settle_and_claim`. It runs before the locks of limits, since it may wait for a
-- lease.
-- The scopes with a free slot are left to `claim_limited` in a setting of the transaction: only behind the locks can it
-- tell whether a lane waits for one.
with clock as materialized (
  select forebay.now_ms() as now
),
ended_leases as (
  delete from forebay.leases
  where id = any(%(ids)s::text[])
    and worker = %(worker)s::text
    and attempt = (%(attempts)s::bigint[])[width_bucket(id, %(ids)s)]
  returning id, started_at, cancel_reason
),
ends as materialized (
  select array_agg(id) as ids, array_agg(started_at) as started, array_agg(cancel_reason) as reasons
  from (select * from ended_leases order by id) as h
),
removed as (
  delete from forebay.jobs where id = any((select ids from ends)::text[]) returning *
),
settled as materialized (
  select count(*) as jobs, array_agg(id) as ids from removed
),
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, 'completed' from removed where has_dependants
  returning id
),
finished as (
  insert into forebay.finished (
    id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at, ready_at,
    run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at,
    payload, result
  )
  select
    g.id, g.seq, g.queue, g.task, 'completed', g.priority, g.options, (%(attempts)s)[p.given], g.failures, g.crashes,
    g.created_at, c.now, g.ready_at, g.run_at, g.rank, g.age_capped, %(worker)s, e.started[p.lease_index], g.deadline_at,
    g.expires_at, g.unique_key, e.reasons[p.lease_index], g.errors, c.now, g.payload, (%(results)s::bytea[])[p.given]
  from clock c
  cross join ends e
  cross join removed g
  cross join lateral (
    select width_bucket(g.id, %(ids)s) as given, width_bucket(g.id, e.ids) as lease_index offset 0
  ) as p
),
released_keys as (
  delete from forebay.job_keys
  where ctid = any(array(
    select k.ctid
    from (
      select id, queue, unique_key from removed where unique_key is not null order by queue, unique_key
    ) as g
    cross join lateral (
      select ctid
      from forebay.job_keys
      where queue = g.queue and kind = 'unique' and key = g.unique_key and job_id = g.id
      for update
    ) as k
  ))
),
released_slots as (
  delete from forebay.limit_slots where id = any((select ids from ends)::text[]) returning scope
),
ended as materialized (
  select queue, count(*) as jobs from removed group by queue
),
counted as (
  insert into forebay.queue_count_deltas (queue, state, jobs)
  select e.queue, v.state, v.jobs
  from ended e
  cross join lateral (values ('running', -e.jobs), ('completed', e.jobs)) as v (state, jobs)
)
select
  -- Null if all are settled, which is nearly always the case: the caller knows their ids.
  case when s.jobs < cardinality(%(ids)s) then coalesce(s.ids, '{}') end,
  (select array_agg(id) from outbox),
  -- Queues with a limit of their own: the claim decides whether other workers get these slots.
  l.queues, l.jobs,
  set_config('forebay_tx.released_scopes', coalesce((select array_agg(scope) from released_slots)::text, ''), true)
from settled s
cross join (
  select array_agg(e.queue) as queues, array_agg(e.jobs) as jobs
  from ended e
  where exists (select 1 from forebay.limits where scope = 'queue:' || e.queue)
) as l;
