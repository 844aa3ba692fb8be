-- name: fairness_keys: fairness keys of a queue that have jobs waiting, lowest virtual time first.
-- Index: fairness_keys_virtual_time.
select fairness_key, virtual_time
from forebay.fairness_keys
where queue = %(queue)s and virtual_time is not null
order by virtual_time, fairness_key
limit %(limit)s;

-- name: fairness_keys_add: record that jobs of these fairness keys have become pending.
insert into forebay.fairness_keys (queue, fairness_key)
select queue, fairness_key from unnest(%(queues)b::text[], %(fairness_keys)b::text[]) as c (queue, fairness_key);

-- name: fairness_keys_advance: advance the virtual times of fairness keys whose jobs were claimed.
update forebay.fairness_keys s
set virtual_time = s.virtual_time + m.step
from unnest(%(fairness_keys)b::text[], %(steps)b::bigint[]) as m (fairness_key, step)
where s.queue = %(queue)s and s.fairness_key = m.fairness_key and s.virtual_time is not null;

-- name: fairness_keys_join: delete the rows without a virtual time, and give each of their keys a virtual time if it
-- has none. A key that had nothing to run starts one step behind the first; keys with another step than the usual one
-- are given.
-- A key with lanes at limits resumes from the virtual time stored there, at most one step from the first
-- (`resuming_virtual_time` in domain/fairness.py). `least` and `greatest` ignore nulls.
-- Index: fairness_keys_virtual_time and limit_fairness_lanes_key.
with arrivals as (
  delete from forebay.fairness_keys
  where queue = any(%(names)b::text[]) and virtual_time is null
  returning queue, fairness_key
),
new as (
  select distinct queue, fairness_key from arrivals
)
insert into forebay.fairness_keys (queue, fairness_key, virtual_time)
select n.queue, n.fairness_key,
  case
    when l.resume_virtual_time is null then coalesce(f.virtual_time, 0) + coalesce(s.step, %(step)s)
    else greatest(
      f.virtual_time - coalesce(s.step, %(step)s),
      least(l.resume_virtual_time, f.virtual_time + coalesce(s.step, %(step)s))
    )
  end
from new n
left join lateral (
  select w.step
  from unnest(%(queues)b::text[], %(fairness_keys)b::text[], %(steps)b::bigint[]) as w (queue, fairness_key, step)
  where w.queue = n.queue and w.fairness_key = n.fairness_key
) as s on true
cross join lateral (
  select (
    select virtual_time
    from forebay.fairness_keys
    where queue = n.queue and virtual_time is not null
    order by virtual_time
    limit 1
  ) as virtual_time
) as f
cross join lateral (
  select max(resume_virtual_time) as resume_virtual_time
  from forebay.limit_fairness_lanes
  where queue = n.queue and fairness_key = n.fairness_key
) as l
where not exists (
  select 1
  from forebay.fairness_keys
  where queue = n.queue and fairness_key = n.fairness_key and virtual_time is not null
);

-- name: fairness_keys_prune: delete fairness keys of these queues that have nothing to run, and repeated rows without a
-- virtual time.
-- Guarantees: a later statement than the lock. A claim may go by a row that is deleted here meanwhile, and would leave
-- a job without any.
-- Locks: the caller holds the fairness locks of the queues.
with again as (
  delete from forebay.fairness_keys s
  where queue = any(%(queues)b::text[])
    and virtual_time is null
    and exists (
      select 1
      from forebay.fairness_keys o
      where o.queue = s.queue and o.fairness_key = s.fairness_key and o.virtual_time is null and o.ctid < s.ctid
    )
)
delete from forebay.fairness_keys s
where queue = any(%(queues)b::text[])
  and virtual_time is not null
  and not exists (select 1 from forebay.side_lanes where queue = s.queue and lane = 'fairness:' || s.fairness_key);

-- name: fairness_keys_remove: delete those of these fairness keys that have nothing to run. If an uncommitted insert
-- adds a job of one, a row without a virtual time comes with it. Their lanes at limits keep their virtual times.
-- Index: side_lanes_order and limit_fairness_lanes_key.
with removed as (
  delete from forebay.fairness_keys s
  where s.queue = %(queue)s
    and s.fairness_key = any(%(fairness_keys)b::text[])
    and s.virtual_time is not null
    and not exists (select 1 from forebay.side_lanes where queue = s.queue and lane = 'fairness:' || s.fairness_key offset 0)
  returning s.queue, s.fairness_key, s.virtual_time
)
update forebay.limit_fairness_lanes l
set resume_virtual_time = g.virtual_time
from removed g
where l.queue = g.queue and l.fairness_key = g.fairness_key;

-- name: fairness_lock: take the fairness locks of these queues until the transaction ends; no other transaction claims
-- by their fairness keys.
-- Locks: in the order of the queue names, against deadlocks.
select pg_advisory_xact_lock(hashtext('forebay.fairness_keys'), hashtext(q.name))
from (select name from unnest(%(queues)b::text[]) as n (name) order by name offset 0) as q;

-- name: fairness_try_lock: queues whose fairness lock this transaction got, until it ends. It waits for no lock.
select q.queue
from (select distinct queue from forebay.fairness_keys offset 0) as q
where pg_try_advisory_xact_lock(hashtext('forebay.fairness_keys'), hashtext(q.queue));

-- name: limit_fairness_advance: advance the virtual times of fairness keys whose jobs left the lane of a limit.
-- Locks: the caller holds the fairness lock of the queue.
update forebay.limit_fairness_lanes l
set virtual_time = l.virtual_time + m.step
from unnest(%(fairness_keys)b::text[], %(steps)b::bigint[]) as m (fairness_key, step)
where l.queue = %(queue)s and l.scope = %(scope)s and l.fairness_key = m.fairness_key;

-- name: limit_fairness_candidates: lock the next jobs of fairness lanes at a limit, so many of each.
-- Locks: SKIP LOCKED.
-- Index: side_lanes_order.
select g.ctid::text, w.lane
from unnest(%(lanes)b::text[], %(rooms)b::bigint[]) with ordinality as w (lane, room, nth)
cross join lateral (
  select ctid
  from forebay.side_lanes
  where queue = %(queue)s and lane = w.lane
  order by age_capped, rank, seq
  limit w.room
  for update skip locked
) as g
order by w.nth;

-- name: limit_fairness_join: record fairness keys whose jobs were parked at limits. A new key starts one step
-- behind the first.
-- Locks: the caller holds the fairness lock of the queue.
insert into forebay.limit_fairness_lanes (queue, scope, fairness_key, virtual_time, resume_virtual_time)
select %(queue)s::text, n.scope, n.fairness_key, coalesce(f.virtual_time, 0) + n.step, coalesce(s.virtual_time, 0)
from unnest(%(scopes)b::text[], %(fairness_keys)b::text[], %(steps)b::bigint[]) as n (scope, fairness_key, step)
left join lateral (
  select virtual_time
  from forebay.limit_fairness_lanes
  where queue = %(queue)s and scope = n.scope
  order by virtual_time
  limit 1
) as f on true
left join lateral (
  select virtual_time
  from forebay.fairness_keys
  where queue = %(queue)s and fairness_key = n.fairness_key and virtual_time is not null
  limit 1
) as s on true
on conflict (queue, scope, fairness_key) do nothing;

-- name: limit_fairness_remove: delete those of these fairness keys that have no jobs parked at the limit.
-- Locks: the caller holds the fairness lock of the queue, so no other transaction puts a job into a lane meanwhile.
-- Index: side_lanes_order.
delete from forebay.limit_fairness_lanes l
where l.queue = %(queue)s
  and l.scope = %(scope)s
  and l.fairness_key = any(%(fairness_keys)b::text[])
  and not exists (
    select 1
    from forebay.side_lanes
    where queue = l.queue and lane = 'limit:' || l.scope || E'\t' || l.fairness_key
    offset 0
  );

-- name: limit_fairness_unpark: move jobs that this transaction has locked from the lanes of a limit into those of their
-- fairness keys. The key stands behind the tab in the name of the limit lane.
update forebay.side_lanes
set lane = 'fairness:' || split_part(lane, E'\t', 2)
where ctid = any(%(ctids)b::text[]::tid[])
returning id;
