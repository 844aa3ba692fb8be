-- name: limits_running: count the jobs with an unexpired lease under limits that were locked before.
-- Guarantees: a statement of its own after the lock, since it must see claims that were committed while this
-- transaction waited.
select l.scope, n.now,
  case when l.concurrency is not null then (
    select count(*)
    from (
      select 1
      from forebay.leases
      where lease_expires_at > n.now and (l.scope = 'global' or queue = substr(l.scope, 7))
      limit l.concurrency
    ) as locked
  ) else 0 end
from forebay.limits l
cross join (select forebay.now_ms() as now offset 0) as n
where l.scope = any(%(scopes)b::text[]) and (l.scope = 'global' or l.scope like 'queue:%%');

-- name: limit_lanes_due: limit lanes of these queues that are to be rechecked, and whether fairness keys have jobs
-- there.
select queue, scope,
  exists (select 1 from forebay.limit_fairness_lanes l where l.queue = c.queue and l.scope = c.scope offset 0)
from forebay.limit_lanes c
where queue = any(%(queues)b::text[]) and recheck_at <= forebay.now_ms()
order by recheck_at
limit %(limit)s;

-- name: limit_lanes_next: the time at which the next limit lane of these queues is to be rechecked.
select min(recheck_at)
from forebay.limit_lanes
where queue = any(%(queues)b::text[]);

-- name: limit_lanes_release: a limit has changed: the next claim rechecks its lanes, those of all values of a key.
insert into forebay.limit_releases (scope)
select distinct scope
from forebay.limit_lanes
where scope = %(scope)s or (scope > %(scope)s || ':' and scope < %(scope)s || '<');

-- name: limit_lanes_save: set when limit lanes of a queue are rechecked; lanes without jobs are forgotten.
with wanted as (
  select c.scope, c.recheck_at,
    -- Not `exists`: the planner might read all lanes and hash them.
    (select 1 from forebay.side_lanes where queue = %(queue)s and lane = 'limit:' || c.scope limit 1) is not null
    or (select 1 from forebay.limit_fairness_lanes where queue = %(queue)s and scope = c.scope limit 1) is not null
    as is_used
  from unnest(%(scopes)b::text[], %(recheck_times)b::bigint[]) as c (scope, recheck_at)
),
-- Only due ones: if the limit was dropped, no lock is held here, and another transaction may have filled the lane again
-- under a limit that was saved meanwhile.
removed as (
  delete from forebay.limit_lanes
  where queue = %(queue)s
    and scope in (select scope from wanted where not is_used)
    and recheck_at <= current_setting('forebay_tx.now')::bigint
)
insert into forebay.limit_lanes (queue, scope, recheck_at)
select %(queue)s, scope, recheck_at from wanted where is_used
on conflict (queue, scope) do update set recheck_at = excluded.recheck_at;

-- name: limit_releases_take: slots were released: the lanes of their scopes are rechecked now.
with taken as (
  delete from forebay.limit_releases returning scope
)
update forebay.limit_lanes
set recheck_at = 0
where scope in (select scope from taken)
returning queue;

-- name: limit_slots_count: count the jobs of each scope with an unexpired lease, with the first expiry, and the token
-- bucket of a key.
select s.scope, h.jobs, h.ends_at, b.token_parts, b.refilled_at
from unnest(%(scopes)b::text[]) as s (scope)
cross join lateral (
  select count(*) as jobs, min(l.lease_expires_at) as ends_at
  from forebay.limit_slots p
  cross join lateral (select lease_expires_at from forebay.leases where id = p.id offset 0) as l
  where p.scope = s.scope and l.lease_expires_at > %(now)s
) as h
left join lateral (select token_parts, refilled_at from forebay.rate_buckets where scope = s.scope) as b on true;

-- name: limit_slots_prune: delete slots of jobs that ended without a settlement.
-- Guarantees: an attempt that begins meanwhile keeps its slot. It has written its attempt there: this statement waits
-- for it, rechecks the row and finds another attempt.
with resolved as materialized (
  select scope, id, attempt
  from forebay.limit_slots p
  where not exists (select 1 from forebay.leases l where l.id = p.id)
)
delete from forebay.limit_slots p
using resolved o
where p.scope = o.scope and p.id = o.id and p.attempt = o.attempt;

-- name: limit_slots_release: release the slots of jobs that do not run any more. The next claim rechecks the lanes of
-- their scopes.
with removed as (
  delete from forebay.limit_slots where id = any(%(ids)b::text[]) returning scope
)
insert into forebay.limit_releases (scope)
select distinct scope from removed;

-- name: limit_slots_release_ended: release the slots of attempts that a caller transaction has ended; a later attempt
-- keeps its slots.
with removed as (
  delete from forebay.limit_slots p
  using unnest(%(ids)b::text[], %(attempts)b::bigint[]) as o (id, attempt)
  where p.id = o.id and p.attempt = o.attempt
  returning p.scope
)
insert into forebay.limit_releases (scope)
select distinct scope from removed;

-- name: limit_slots_take: give attempts their slots in these scopes.
insert into forebay.limit_slots (scope, id, attempt)
select p.scope, p.id, p.attempt
from unnest(%(scopes)b::text[], %(ids)b::text[], %(attempts)b::bigint[]) as p (scope, id, attempt)
on conflict (scope, id) do update set attempt = excluded.attempt;

-- name: limit_usages: all limits with their token buckets, and the number of jobs with an unexpired lease under each.
-- Cost: few jobs run, and slots belong to running jobs: nothing here grows with waiting or finished jobs.
select l.scope, l.concurrency, l.rate, l.per_ms, l.burst, l.token_parts, l.refilled_at,
  case
    when l.scope = 'global' or l.scope like 'queue:%%' then (
      select count(*)
      from forebay.leases h
      where h.lease_expires_at > %(now)s and (l.scope = 'global' or h.queue = substr(l.scope, 7))
    )
    else (
      select count(*)
      from forebay.limit_slots p
      join forebay.leases h on h.id = p.id and h.lease_expires_at > %(now)s
      where p.scope = l.scope or (l.scope like 'key:%%' and starts_with(p.scope, l.scope || ':'))
    )
  end
from forebay.limits l
order by l.scope;

-- name: rate_buckets_convert: a limit by key has another rate: each value keeps its tokens, counted in the new parts.
-- Less than one part is lost, as in `convert_bucket`: rounded up it would be given away.
update forebay.rate_buckets
set token_parts = least(
      %(full)s::numeric,
      floor(
        least(%(old_full)s::numeric, token_parts + greatest(0, %(now)s - refilled_at)::numeric * %(old_rate)s) * %(per_ms)s
          / %(old_per_ms)s
      )
    )::bigint,
    refilled_at = %(now)s
where scope > %(scope)s || ':' and scope < %(scope)s || '<';

-- name: rate_buckets_prune: delete token buckets that were not used for twice the time of filling up, and that are full
-- again after jobs that cost more than was left.
delete from forebay.rate_buckets b
using forebay.limits l
where b.scope like 'key:%%'
  and l.scope = 'key:' || split_part(b.scope, ':', 2)
  and b.refilled_at <= forebay.now_ms() - 2 * coalesce(l.burst, 2 * l.rate) * l.per_ms / l.rate
  and b.token_parts + (forebay.now_ms() - b.refilled_at) * l.rate >= coalesce(l.burst, 2 * l.rate) * l.per_ms;

-- name: rate_buckets_save: store token buckets of keys.
insert into forebay.rate_buckets (scope, token_parts, refilled_at)
select b.scope, b.token_parts, b.refilled_at
from unnest(%(scopes)b::text[], %(token_parts)b::bigint[], %(refilled_at)b::bigint[])
  as b (scope, token_parts, refilled_at)
on conflict (scope) do update set token_parts = excluded.token_parts, refilled_at = excluded.refilled_at;

-- name: rates_prune: delete full token buckets of rates at which queues accept jobs.
-- Locks: SKIP LOCKED. An insert may wait for this delete and then writes the row again.
delete from forebay.rate_buckets
where scope in (
  select scope
  from forebay.rate_buckets
  where refilled_at <= %(before)s
    and (scope like 'client:%%' or scope like 'enqueue:%%')
  for update skip locked
);
