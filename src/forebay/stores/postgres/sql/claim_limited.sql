-- claim_limited: claim the next jobs of one queue under limits, where no limit parks one of them. It runs in one
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
uncapped as materialized (
  select ctid, id, rank, seq, false as is_late
  from forebay.ready
  where queue = (select queue from claim_start)
    and age_capped = false
    and (rank, seq) > (%(after_rank)s::bigint, %(after_seq)s::bigint)
    and (expires_at is null or expires_at > (select now from claim_start))
  order by rank, seq
  limit (select room from broad)
  for update skip locked
),
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
  limit (select room from broad)
),
found as materialized (
  select f.ctid, f.is_late, j.*
  from (
    select ctid, id, rank, seq, is_late from uncapped
    union all
    select ctid, id, rank, seq, is_late from late
    order by rank, seq
    limit (select room from broad)
  ) as f
  cross join lateral (
    select id, seq, queue, task, payload, priority, options, attempt, failures, crashes, created_at, ready_at, run_at,
      rank, age_capped, deadline_at, expires_at, unique_key, errors
    from forebay.jobs
    where id = f.id
    offset 0
  ) as j
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
      select 1
      from found
      where not 'task:' || task = any(%(lanes)s)
        or options like '%%"lease_ms"%%'
        or options like '%%"extension_ms"%%'
        or options like '%%"unique_until"%%'
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
select id, seq, queue, task,
  case when octet_length(payload) <= %(max_payload)s::bigint then payload else ''::bytea end as payload,
  priority, options, attempt, failures, crashes, created_at, ready_at, run_at, rank, age_capped,
  deadline_at, expires_at, unique_key, errors, is_late, null::text as snapshot, null::bigint as now,
  null::bigint as next_due, null::boolean as needs_slow_path, null::boolean as claims_need_slow_path,
  null::bigint as arrivals, null::double precision as seconds, null::text[] as settled, null::text[] as cancels,
  null::text[] as cancel_reasons,
  null::bigint[] as outbox_ids, null::bigint as room, null::boolean as has_limits, null::boolean as has_waiting_lane
from accepted
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
  null, pg_current_snapshot()::text, s.now, s.next_due, s.needs_slow_path,
  (select count(*) from found) > (select count(*) from accepted), (select count(*) from arrivals),
  (select extract(epoch from clock_timestamp() - began)::double precision from claim_start),
  null, c.ids, c.reasons, null, (select room from broad), s.has_limits, exists (select 1 from released_lanes)
from state s
cross join (
  select array_agg(id) as ids, array_agg(cancel_reason) as reasons
  from forebay.leases
  where worker = %(worker)s and cancel_reason is not null
) as c;
