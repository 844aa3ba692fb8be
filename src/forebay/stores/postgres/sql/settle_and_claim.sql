-- name: settle_and_claim: settle successes, then claim the next jobs of one queue; a whole call of the fast path.
-- Guarantees: one statement, so it needs no transaction around it. With `needs_slow_path` it does nothing at all: the
-- queue differs from what the caller knows, jobs are due or expired, or some are age-capped, have a fairness key or
-- wait in a lane of the caller. With `claims_need_slow_path` it claims nothing: a next job is not for the caller, or
-- has a lease time or a key release of its own. The caller runs the rest on the slow path.
-- It settles first and claims then, as the slow path does: a settlement may wait for a lock of another transaction, and
-- must not hold a row meanwhile that others could wait for. `claim_start` reads all that is settled before the claim
-- begins.
-- Guards are those of `complete`, claim cursor and arrivals those of `candidates`.
-- Cost: ids are sorted, so `width_bucket` finds a position by binary search; array_position took 3 us a job. A subquery
-- that finds a row for another one is fenced (`offset 0`), so that the planner has no join to choose: it takes tables
-- that were small once for small ones. For the same reason each subquery asks for the order of the index that it relies
-- on. If the tables were empty when they were analysed, all indexes that begin with the queue seem to cost the same,
-- and with the wrong one every claim reads the whole queue.
with state as materialized (
  select c.now, d.run_at as next_due,
    c.now < %(since)s::bigint
    or coalesce(d.run_at <= c.now, false)
    or not exists (
      select 1
      from forebay.queues
      where name = %(queue)s::text and state in ('active', 'draining') and settings = %(settings)s::text
    )
    or exists (select 1 from forebay.limits where scope = 'queue:' || %(queue)s or scope not like 'queue:%%')
    -- include: other_slow_path_reasons
ended_leases as (
  delete from forebay.leases
  where id = any(%(ids)s::text[])
    and worker = %(worker)s::text
    and attempt = (%(attempts)s::bigint[])[width_bucket(id, %(ids)s)]
    and (select not needs_slow_path from state)
  returning id, started_at, cancel_reason
),
-- include: settled_rows
-- An insert of a job that depends on one of these locks its row and marks it: `removed` has waited for it and returns
-- the row with the mark. If `resolve_inline` follows, the ids are left to it in a setting of the transaction.
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, 'completed' from removed where has_dependants and not %(resolves_inline)s::boolean
  returning id
),
-- include: finished_columns
  select
    g.id, g.seq, g.queue, g.task, 'completed', g.priority, g.options, (%(attempts)s)[p.given], g.failures, g.crashes,
    g.created_at, s.now, g.ready_at, g.run_at, g.rank, g.age_capped, %(worker)s, e.started[p.lease_index], g.deadline_at,
    g.expires_at, g.unique_key, e.reasons[p.lease_index], g.errors, s.now, g.payload, (%(results)s::bytea[])[p.given]
  from state s
  cross join ends e
  cross join removed g
  cross join lateral (
    select width_bucket(g.id, %(ids)s) as given, width_bucket(g.id, e.ids) as lease_index offset 0
  ) as p
),
-- include: released_unique_keys
claim_start as materialized (
  select %(queue)s as queue, s.now, clock_timestamp() as began
  from state s
  cross join settled
  where not s.needs_slow_path
),
-- include: uncapped_in_order
  limit %(room)s::bigint
  for update skip locked
),
-- include: late_arrivals
  limit %(room)s
),
-- include: found_in_order
    limit %(room)s
  ) as f
  -- include: job_of_found
),
accepted as materialized (
  select *
  from found
  where not exists (
    -- include: slow_path_job
  )
),
-- include: lease_accepted
counted as (
  insert into forebay.queue_count_deltas (queue, state, jobs)
  select c.queue, c.state, sum(c.jobs)
  from (
    select g.queue, v.state, v.jobs
    from (select queue, count(*) as jobs from removed group by queue) as g
    cross join lateral (values ('running', -g.jobs), ('completed', g.jobs)) as v (state, jobs)
    union all
    select %(queue)s, v.state, v.jobs
    from (select count(*) as jobs from accepted) as m
    cross join lateral (values ('pending', -m.jobs), ('running', m.jobs)) as v (state, jobs)
  ) as c
  group by c.queue, c.state
  having sum(c.jobs) <> 0
)
-- The last row is the response; the others are the jobs, as in `candidates`.
-- include: accepted_columns
  null::bigint[] as outbox_ids, null::text as ended
from accepted
union all
-- include: claim_response
  -- Null if all are settled, which is nearly always the case: the caller knows their ids.
  case when e.jobs < cardinality(%(ids)s) then coalesce(e.ids, '{}') end, c.ids, c.reasons,
  (select array_agg(id) from outbox),
  case when %(resolves_inline)s
    then set_config(
      'forebay_tx.ended_ids', coalesce((select array_agg(id) from removed where has_dependants)::text, ''), true
    )
  end
from state s
cross join settled e
cross join (
  select array_agg(id) as ids, array_agg(cancel_reason) as reasons
  from forebay.leases
  where worker = %(worker)s and cancel_reason is not null and id <> all(%(ids)s)
) as c;

-- name: settle_before_claim: settle successes and release their slots under limits; the first part of a call under
-- limits, in the same transaction as `limits_lock` and `claim_limited`, which follow it.
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
-- include: settled_rows
outbox as (
  insert into forebay.dependency_outbox (job_id, event)
  select id, 'completed' from removed where has_dependants
  returning id
),
-- include: finished_columns
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
-- include: released_unique_keys
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

-- name: limits_lock: lock the limits of these scopes and those of all tasks and keys; no other transaction claims under
-- them before this one ends.
-- Locks: by scope, against deadlocks.
select scope, concurrency, rate, per_ms, burst, token_parts, refilled_at
from forebay.limits
where scope = any(%(scopes)b::text[]) or scope like 'task:%%' or scope like 'key:%%'
order by scope
for update;

-- name: claim_limited: claim the next jobs of one queue under limits, where no limit parks one of them. It runs in one
-- transaction with `limits_lock` and after it: only a later statement sees claims that were committed while this
-- transaction waited for the locks.
-- `needs_slow_path` covers the cases of `settle_and_claim`, and rates and jobs in limit lanes. `claims_need_slow_path`:
-- a job finds its limit full. In both cases nothing is claimed.
-- Cost: a slot counts whether or not its lease has expired. That is rare, and the slow path checks it.
-- Order, claim cursor and arrivals are those of `settle_and_claim`.
with state as materialized (
  select c.now, d.run_at as next_due,
    exists (select 1 from forebay.limits where scope = 'queue:' || %(queue)s or scope not like 'queue:%%') as has_limits,
    c.now < %(since)s::bigint
    or coalesce(d.run_at <= c.now, false)
    or not exists (
      select 1
      from forebay.queues
      where name = %(queue)s::text and state in ('active', 'draining') and settings = %(settings)s::text
    )
    or exists (
      select 1
      from forebay.limits
      where rate is not null and (scope = 'queue:' || %(queue)s or scope not like 'queue:%%')
    )
    -- include: other_slow_path_reasons
-- Lanes are rechecked for the slots that `settle_before_claim` has released.
released_lanes as (
  insert into forebay.limit_releases (scope)
  select distinct scope
  from forebay.limit_lanes
  where scope = any(nullif(current_setting('forebay_tx.released_scopes', true), '')::text[])
  returning scope
),
broad as materialized (
  select least(%(room)s::bigint, min(l.concurrency - r.running)) as room
  from forebay.limits l
  cross join lateral (
    select count(*) as running
    from (
      select 1
      from forebay.leases
      where lease_expires_at > (select now from state) and (l.scope = 'global' or queue = %(queue)s)
      limit l.concurrency
    ) as h
  ) as r
  where l.scope in ('global', 'queue:' || %(queue)s) and l.concurrency is not null
),
narrow as materialized (
  select scope, concurrency, case when scope like 'key:%%' then array['limit_keys', substr(scope, 5)] end as path
  from forebay.limits
  where concurrency is not null and (scope like 'task:%%' or scope like 'key:%%')
),
claim_start as materialized (
  select %(queue)s as queue, s.now, clock_timestamp() as began
  from state s
  where not s.needs_slow_path
),
-- include: uncapped_in_order
  limit (select room from broad)
  for update skip locked
),
-- include: late_arrivals
  limit (select room from broad)
),
-- include: found_in_order
    limit (select room from broad)
  ) as f
  -- include: job_of_found
),
-- The options are parsed once for each limit by key.
wanted_slots as materialized (
  select f.id, f.attempt + 1 as attempt, n.concurrency,
    case when n.path is null then n.scope else n.scope || ':' || k.value end as scope
  from narrow n
  cross join found f
  cross join lateral (select f.options::json #>> n.path as value offset 0) as k
  where k.value is not null or n.scope = 'task:' || f.task
),
accepted as materialized (
  select *
  from found
  where not exists (
      -- include: slow_path_job
    )
    -- One query for the slots of all scopes: one for each took 2 us a job more.
    and not exists (
      select 1
      from (
        select scope, concurrency from wanted_slots
        union all
        select p.scope, null from forebay.limit_slots p where p.scope = any(array(select scope from wanted_slots))
      ) as w
      group by w.scope
      having count(*) > min(w.concurrency)
    )
),
-- include: lease_accepted
-- All of them or none: see `accepted`. It fails if an older attempt has left its slot behind, and the slow path repairs
-- that. `on conflict` instead took 3 us a job.
acquired_slots as (
  insert into forebay.limit_slots (scope, id, attempt)
  select scope, id, attempt from wanted_slots where exists (select 1 from accepted)
),
counted as (
  insert into forebay.queue_count_deltas (queue, state, jobs)
  select %(queue)s, v.state, v.jobs
  from (select count(*) as jobs from accepted) as m
  cross join lateral (values ('pending', -m.jobs), ('running', m.jobs)) as v (state, jobs)
  where m.jobs > 0
)
-- The last row is the response; the others are the jobs, as in `candidates`.
-- include: accepted_columns
  null::bigint[] as outbox_ids, null::bigint as room, null::boolean as has_limits, null::boolean as has_waiting_lane
from accepted
union all
-- include: claim_response
  null, c.ids, c.reasons, null, (select room from broad), s.has_limits, exists (select 1 from released_lanes)
from state s
cross join (
  select array_agg(id) as ids, array_agg(cancel_reason) as reasons
  from forebay.leases
  where worker = %(worker)s and cancel_reason is not null
) as c;

-- fragment: other_slow_path_reasons: reasons for the slow path whatever the limits, and when the next delayed job is
-- due. Ends `state`.
    or exists (select 1 from forebay.limit_lanes where queue = %(queue)s)
    or exists (select 1 from forebay.fairness_keys where queue = %(queue)s)
    or (select rank from forebay.ready where queue = %(queue)s and age_capped = true order by rank limit 1) is not null
    or exists (select 1 from forebay.side_lanes where queue = %(queue)s) and (
      %(lanes)s::text[] is null
      or exists (select 1 from forebay.side_lanes where queue = %(queue)s and lane = any(%(lanes)s))
    )
    or exists (select 1 from forebay.ready where expires_at >= %(since)s and expires_at <= c.now)
    or exists (select 1 from forebay.delayed where expires_at >= %(since)s and expires_at <= c.now)
    or exists (select 1 from forebay.side_lanes where expires_at >= %(since)s and expires_at <= c.now)
    or exists (select 1 from forebay.blocked where expires_at >= %(since)s and expires_at <= c.now)
    as needs_slow_path
  from (select forebay.now_ms() as now offset 0) as c
  left join lateral (
    select run_at from forebay.delayed where queue = %(queue)s and run_at >= %(since)s order by run_at limit 1
  ) as d on true
),

-- fragment: uncapped_in_order: lock the next jobs from the claim cursor on; the statement adds its limit.
uncapped as materialized (
  select ctid, id, rank, seq, false as is_late
  from forebay.ready
  where queue = (select queue from claim_start)
    and age_capped = false
    and (rank, seq) > (%(after_rank)s::bigint, %(after_seq)s::bigint)
    and (expires_at is null or expires_at > (select now from claim_start))
  order by rank, seq

-- fragment: late_arrivals: lock jobs that arrived at ranks behind the claim cursor; the statement adds its limit.
arrivals as materialized (
  select ctid
  from (
    (
      select ctid, age_capped, rank, seq, expires_at
      from forebay.ready
      where queue = (select queue from claim_start) and inserted_xid >= %(xmax)s::text::xid8
      order by inserted_xid
      offset 0
    )
    union all
    (
      select r.*
      from unnest(%(running_xids)s::text[]) as u (xid)
      cross join lateral (
        select ctid, age_capped, rank, seq, expires_at
        from forebay.ready
        where queue = (select queue from claim_start) and inserted_xid >= u.xid::xid8 and inserted_xid <= u.xid::xid8
        order by inserted_xid
        offset 0
      ) as r
    )
  ) as a
  where not age_capped
    and (rank, seq) <= (%(after_rank)s, %(after_seq)s)
    and (expires_at is null or expires_at > (select now from claim_start))
  order by rank, seq
  limit %(max_arrivals)s::bigint
),
late as materialized (
  select r.*
  from arrivals c
  cross join lateral (
    select ctid, id, rank, seq, true as is_late from forebay.ready where ctid = c.ctid for update skip locked
  ) as r

-- fragment: found_in_order: the locked jobs in order; the statement adds its limit.
found as materialized (
  select f.ctid, f.is_late, j.*
  from (
    select ctid, id, rank, seq, is_late from uncapped
    union all
    select ctid, id, rank, seq, is_late from late
    order by rank, seq

-- fragment: job_of_found: columns of a found job.
cross join lateral (
  select id, seq, queue, task, payload, priority, options, attempt, failures, crashes, created_at, ready_at, run_at,
    rank, age_capped, deadline_at, expires_at, unique_key, errors
  from forebay.jobs
  where id = f.id
  offset 0
) as j

-- fragment: slow_path_job: found jobs that only the slow path may claim, or that are not for this worker.
select 1
from found
where not 'task:' || task = any(%(lanes)s)
  or options like '%%"lease_ms"%%'
  or options like '%%"extension_ms"%%'
  or options like '%%"unique_until"%%'

-- fragment: lease_accepted: turn the accepted jobs into leases.
taken as (
  delete from forebay.ready where ctid = any(array(select ctid from accepted))
),
leased as (
  insert into forebay.leases (id, seq, queue, attempt, worker, lease_expires_at, started_at, updated_at, lease_limit_at)
  select m.id, m.seq, m.queue, m.attempt + 1, %(worker)s, s.now + %(lease_ms)s::bigint, s.now, s.now,
    s.now + %(extension_ms)s::bigint
  from state s
  cross join accepted m
),

-- fragment: accepted_columns: columns of a claimed job and of the response.
select id, seq, queue, task,
  case when octet_length(payload) <= %(max_payload)s::bigint then payload else ''::bytea end as payload,
  priority, options, attempt, failures, crashes, created_at, ready_at, run_at, rank, age_capped,
  deadline_at, expires_at, unique_key, errors, is_late, null::text as snapshot, null::bigint as now,
  null::bigint as next_due, null::boolean as needs_slow_path, null::boolean as claims_need_slow_path,
  null::bigint as arrivals, null::double precision as seconds, null::text[] as settled, null::text[] as cancels,
  null::text[] as cancel_reasons,

-- fragment: claim_response: first columns of the response.
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
  null, pg_current_snapshot()::text, s.now, s.next_due, s.needs_slow_path,
  (select count(*) from found) > (select count(*) from accepted), (select count(*) from arrivals),
  (select extract(epoch from clock_timestamp() - began)::double precision from claim_start),

-- fragment: settled_rows: delete the jobs whose leases ended; ids are sorted.
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

-- fragment: finished_columns: columns of the completed jobs.
finished as (
  insert into forebay.finished (
    id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at, ready_at,
    run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at,
    payload, result
  )

-- fragment: released_unique_keys: release the unique keys of the settled jobs, in the order of keys.
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
