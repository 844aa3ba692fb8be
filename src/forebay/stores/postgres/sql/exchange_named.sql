-- exchange_named: what `exchange` does, for jobs whose places in the queue's order somebody else has named.
-- Guarantees: those of `exchange`, which gives the reasons. Whoever names a place decides nothing: a job is claimed only if it
-- waits at that very place, in this queue, and nobody has it in hand (SKIP LOCKED). What has moved meanwhile is passed over, and
-- the caller goes on by the order itself. Whoever changes a waiting job replaces its narrow row, so the job that is read
-- beside a locked one is as it stands.
-- Each place is looked up by itself, as a range of one in the order of the primary key: between two of them may lie
-- any number of dead rows.
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
    or exists (select 1 from forebay.closed where queue = %(queue)s)
    or exists (select 1 from forebay.shares where queue = %(queue)s)
    or (select rank from forebay.ready where queue = %(queue)s and capped = true order by rank limit 1) is not null
    or exists (select 1 from forebay.gated where queue = %(queue)s) and (
      %(gates)s::text[] is null
      or exists (select 1 from forebay.gated where queue = %(queue)s and gate = any(%(gates)s))
    )
    or exists (select 1 from forebay.ready where expires_at >= %(since)s and expires_at <= c.now)
    or exists (select 1 from forebay.due where expires_at >= %(since)s and expires_at <= c.now)
    or exists (select 1 from forebay.gated where expires_at >= %(since)s and expires_at <= c.now)
    or exists (select 1 from forebay.blocked where expires_at >= %(since)s and expires_at <= c.now)
    as is_special
  from (select forebay.now_ms() as now offset 0) as c
  left join lateral (
    select run_at from forebay.due where queue = %(queue)s and run_at >= %(since)s order by run_at limit 1
  ) as d on true
),
held as (
  delete from forebay.leases
  where id = any(%(ids)s::text[])
    and worker = %(worker)s::text
    and attempt = (%(attempts)s::bigint[])[width_bucket(id, %(ids)s)]
    and (select not is_special from state)
  returning id, started_at, cancel_reason
),
ends as materialized (
  select array_agg(id) as ids, array_agg(started_at) as started, array_agg(cancel_reason) as reasons
  from (select * from held order by id) as h
),
gone as (
  delete from forebay.jobs where id = any((select ids from ends)::text[]) returning *
),
settled as materialized (
  select count(*) as jobs, array_agg(id) as ids from gone
),
-- Whoever has inserted a job that depends on one of these holds its row and marks it: we have waited for it, and `gone`
-- has the row with the mark.
listed as (
  insert into forebay.aftermaths (parent, aftermath)
  select id, 'completed' from gone where has_dependants
  returning number
),
finished as (
  insert into forebay.finished (
    id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at, ready_at,
    run_at, rank, capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at,
    payload, result
  )
  select
    g.id, g.seq, g.queue, g.task, 'completed', g.priority, g.options, (%(attempts)s)[p.given], g.failures, g.crashes,
    g.created_at, s.now, g.ready_at, g.run_at, g.rank, g.capped, %(worker)s, e.started[p.held], g.deadline_at,
    g.expires_at, g.unique_key, e.reasons[p.held], g.errors, s.now, g.payload, (%(results)s::bytea[])[p.given]
  from state s
  cross join ends e
  cross join gone g
  cross join lateral (
    select width_bucket(g.id, %(ids)s) as given, width_bucket(g.id, e.ids) as held offset 0
  ) as p
),
freed as (
  delete from forebay.keys
  where ctid = any(array(
    select k.spot
    from (
      select id, queue, unique_key from gone where unique_key is not null order by queue, unique_key
    ) as g
    cross join lateral (
      select ctid as spot
      from forebay.keys
      where queue = g.queue and kind = 'unique' and key = g.unique_key and job_id = g.id
      for update
    ) as k
  ))
),
open as materialized (
  select %(queue)s as queue, s.now, clock_timestamp() as began
  from state s
  cross join settled
  where not s.is_special
),
-- In the order in which they were named, which is that of ranks: the last of them are left out where there is less room.
named as materialized (
  select r.*
  from unnest(%(ranks)s::bigint[], %(seqs)s::bigint[]) as n (rank, seq)
  cross join lateral (
    select ctid as spot, id, rank, seq, false as is_late
    from forebay.ready
    where queue = (select queue from open)
      and capped = false
      and (rank, seq) >= (n.rank, n.seq)
      and (rank, seq) <= (n.rank, n.seq)
      and (expires_at is null or expires_at > (select now from open))
    order by rank, seq
    for update skip locked
  ) as r
  limit %(room)s::bigint
),
found as materialized (
  select f.spot, f.is_late, j.*
  from named f
  cross join lateral (
    select id, seq, queue, task, payload, priority, options, attempt, failures, crashes, created_at, ready_at, run_at,
      rank, capped, deadline_at, expires_at, unique_key, errors
    from forebay.jobs
    where id = f.id
    offset 0
  ) as j
),
mine as materialized (
  select *
  from found
  where not exists (
    select 1
    from found
    where not 'task:' || task = any(%(gates)s)
      or options like '%%"lease_ms"%%'
      or options like '%%"extension_ms"%%'
      or options like '%%"unique_until"%%'
  )
),
taken as (
  delete from forebay.ready where ctid = any(array(select spot from mine))
),
leased as (
  insert into forebay.leases (id, seq, queue, attempt, worker, until, started_at, updated_at, latest_at)
  select m.id, m.seq, m.queue, m.attempt + 1, %(worker)s, s.now + %(lease_ms)s::bigint, s.now, s.now,
    s.now + %(extension_ms)s::bigint
  from state s
  cross join mine m
),
counted as (
  insert into forebay.count_deltas (queue, state, jobs)
  select c.queue, c.state, sum(c.jobs)
  from (
    select g.queue, v.state, v.jobs
    from (select queue, count(*) as jobs from gone group by queue) as g
    cross join lateral (values ('running', -g.jobs), ('completed', g.jobs)) as v (state, jobs)
    union all
    select %(queue)s, v.state, v.jobs
    from (select count(*) as jobs from mine) as m
    cross join lateral (values ('pending', -m.jobs), ('running', m.jobs)) as v (state, jobs)
  ) as c
  group by c.queue, c.state
  having sum(c.jobs) <> 0
)
-- The last row says how it went; the others are the jobs, as `heads` has them.
select id, seq, queue, task,
  case when octet_length(payload) <= %(max_payload)s::bigint then payload else ''::bytea end as payload, priority, options, attempt, failures, crashes, created_at, ready_at, run_at, rank,
  capped, deadline_at, expires_at, unique_key, errors, is_late, null::text as snapshot, null::bigint as now,
  null::bigint as next_due, null::boolean as is_special, null::boolean as is_strange, null::bigint as came,
  null::double precision as seconds, null::text[] as settled, null::text[] as cancels, null::text[] as cancel_reasons,
  null::bigint[] as listed
from mine
union all
select null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
  null, pg_current_snapshot()::text, s.now, s.next_due, s.is_special,
  (select count(*) from found) > (select count(*) from mine), 0::bigint,
  (select extract(epoch from clock_timestamp() - began)::double precision from open),
  -- Nearly always all of them, and the caller knows which these are.
  case when e.jobs < cardinality(%(ids)s) then coalesce(e.ids, '{}') end, c.ids, c.reasons,
  (select array_agg(number) from listed)
from state s
cross join settled e
cross join (
  select array_agg(id) as ids, array_agg(cancel_reason) as reasons
  from forebay.leases
  where worker = %(worker)s and cancel_reason is not null and id <> all(%(ids)s)
) as c;
