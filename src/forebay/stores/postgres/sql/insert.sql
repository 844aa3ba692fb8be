-- name: insert: insert new jobs that differ only in id, seq, options, key, payload and edges, with their narrow rows.
-- Guarantees: all of them or none. An id that another transaction has taken meanwhile is a unique violation, and the
-- transaction is retried: it then sees ids given by callers, and creates new ones for the rest.
-- Cost: seqs are sorted, so `width_bucket` finds a position by binary search.
with new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, created_at, updated_at, ready_at, run_at, rank, age_capped,
    rescore_at, deadline_at, expires_at, unique_key, payload, has_dependants
  )
  select n.id, n.seq, %(queue)s::text, %(task)s::text, %(priority)s::integer, n.options, %(now)s, %(now)s,
    %(due_at)s, %(due_at)s, %(rank)s, %(age_capped)s::boolean, %(rescore_at)s::bigint, %(deadline_at)s::bigint,
    %(expires_at)s::bigint, n.unique_key, n.payload, n.has_dependants > 0
  from unnest(
    %(ids)b::text[], %(seqs)b::bigint[], %(options)b::text[], %(unique_keys)b::text[], %(payloads)b::bytea[],
    %(dependants)b::bigint[]
  ) as n (id, seq, options, unique_key, payload, has_dependants)
  returning id, seq
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select %(queue)s::text, %(age_capped)s::boolean, %(rank)s, seq, id, %(expires_at)s::bigint
  from new
  where %(state)s::text = 'pending' and %(lane)s::text is null
),
parked as (
  insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
  select id, %(queue)s::text, %(lane)s::text, %(age_capped)s::boolean, %(rank)s, seq, %(expires_at)s::bigint
  from new
  where %(state)s::text = 'pending' and %(lane)s::text is not null
),
later as (
  insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
  select id, %(queue)s::text, %(due_at)s, seq, 'scheduled', %(expires_at)s::bigint
  from new
  where %(state)s::text = 'scheduled'
),
blocked_rows as (
  insert into forebay.blocked (id, queue, run_at, seq, unmet, expires_at)
  select id, %(queue)s::text, %(due_at)s, seq, (%(unmet)b::bigint[])[width_bucket(seq, %(seqs)b::bigint[])],
    %(expires_at)s::bigint
  from new
  where %(state)s::text = 'blocked'
)
select count(*) from new;

-- name: insert_graph: what `insert_identical` does, for jobs that differ in their tasks too, or depend on each other.
-- Jobs with parents are blocked, and their edges come with them.
-- Guarantees: all of it or nothing. No transaction sees a parent before its child, so it need not be locked, and its
-- row has the mark `has_dependants` from the start.
with queue as (
  select forebay.now_ms() as now
  from forebay.queues
  where name = %(queue)s::text and state in ('active', 'paused') and settings = %(settings)s::text
),
-- Computed before, so that the narrow rows come from the same arrays as the jobs and not from the inserted rows.
new_seqs as materialized (
  select array_agg(nextval('forebay.job_seq')) as seqs
  from queue
  cross join generate_series(1, cardinality(%(ids)s::text[]))
),
new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, created_at, updated_at, ready_at, run_at, rank, expires_at, payload,
    has_dependants
  )
  select n.id, n.seq, %(queue)s, n.task, %(priority)s::integer, n.options, q.now, q.now, q.now, q.now,
    q.now + %(rank)s::bigint, %(expires_at)s::bigint, n.payload, n.dependants > 0
  from queue as q
  cross join new_seqs as s
  cross join lateral unnest(
    s.seqs, %(ids)s, %(tasks)s::text[], %(options)s::text[], %(payloads)s::bytea[], %(dependants)s::bigint[]
  ) as n (seq, id, task, options, payload, dependants)
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select %(queue)s, false, q.now + %(rank)s, n.seq, n.id, %(expires_at)s
  from queue as q
  cross join new_seqs as s
  cross join lateral unnest(s.seqs, %(ids)s, %(unmet)s::bigint[]) as n (seq, id, unmet)
  where n.unmet = 0
),
blocked_rows as (
  insert into forebay.blocked (id, queue, run_at, seq, unmet, expires_at)
  select n.id, %(queue)s, q.now, n.seq, n.unmet, %(expires_at)s
  from queue as q
  cross join new_seqs as s
  cross join lateral unnest(s.seqs, %(ids)s, %(unmet)s) as n (seq, id, unmet)
  where n.unmet > 0
),
linked as (
  insert into forebay.dependencies (child_id, position, parent_id, on_failure, state)
  select e.child_id, e.position, e.parent_id, %(on_failure)s::text, 'open'
  from queue
  cross join unnest(%(child_ids)s::text[], %(positions)s::bigint[], %(parent_ids)s::text[])
    as e (child_id, position, parent_id)
),
counted as (
  insert into forebay.queue_count_deltas (queue, state, jobs)
  select %(queue)s, v.state, v.jobs
  from queue
  cross join (values ('pending', %(pending)s::bigint), ('blocked', %(blocked)s::bigint)) as v (state, jobs)
  where v.jobs > 0
)
select now, case when %(channel)s::text is not null then pg_notify(%(channel)s, '')::text end
from queue;

-- name: insert_identical: what `insert_one` does, for jobs that differ only in id, options and payload.
-- Guarantees: the order of the arrays is the order of the seqs.
-- include: expected_queue
new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, created_at, updated_at, ready_at, run_at, rank, expires_at, payload
  )
  select n.id, nextval('forebay.job_seq'), %(queue)s, %(task)s::text, %(priority)s::integer, n.options, q.now, q.now,
    q.now, q.now, q.now + %(rank)s::bigint, %(expires_at)s::bigint, n.payload
  from queue as q,
    unnest(%(ids)s::text[], %(options)s::text[], %(payloads)s::bytea[]) as n (id, options, payload)
  returning id, seq, rank
),
-- include: insert_into_ready
counted as (
  insert into forebay.queue_count_deltas (queue, state, jobs)
  select %(queue)s, 'pending', count(*)
  from new
  having count(*) > 0
  returning jobs
)
select jobs, case when %(channel)s::text is not null then pg_notify(%(channel)s, '')::text end
from counted;

-- name: insert_one: insert a job that is ready now, if its queue is open and has the settings that the caller knows.
-- Guarantees: one statement that waits for no lock, so it needs no transaction around it. No row means that nothing was
-- written, since the queue has changed.
-- include: expected_queue
new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, created_at, updated_at, ready_at, run_at, rank, expires_at, payload
  )
  -- The given rank is that of a job that is ready at time 0; the time at which it is ready is added.
  select %(id)s::text, nextval('forebay.job_seq'), %(queue)s, %(task)s::text, %(priority)s::integer,
    %(options)s::text, now, now, now, now, now + %(rank)s::bigint, %(expires_at)s::bigint, %(payload)s::bytea
  from queue
  returning id, seq, rank
),
-- include: insert_into_ready
counted as (
  insert into forebay.queue_count_deltas (queue, state, jobs)
  select %(queue)s, 'pending', 1
  from new
  returning jobs
)
select jobs, case when %(channel)s::text is not null then pg_notify(%(channel)s, '')::text end
from counted;

-- name: next_seqs: seqs for new jobs. Those of two inserts at once may interleave, and none is used twice.
-- Guarantees: from here on the transaction has an xid and a lock on `jobs` that `active_writers` sees. So a rescore
-- does not finish before it has ended; the settings of queues are read later.
with registered as (
  update forebay.jobs set seq = seq where false
)
select nextval('forebay.job_seq')
from generate_series(1, %(jobs)s)
where pg_current_xact_id() is not null;

-- name: ids_busy: those of these jobs that a caller transaction writes or completes (`ids_lock`, `now_completing`).
-- Locks: none is waited for; see `key_holders` for the probe.
select n.id
from (
  select w.id, hashtextextended('forebay.jobs ' || w.id, 0) as lock_id from unnest(%(ids)b::text[]) as w (id) offset 0
) as n
where not case when pg_try_advisory_lock_shared(n.lock_id) then pg_advisory_unlock_shared(n.lock_id) else false end;

-- name: ids_lock: show until the end of a caller transaction that it writes jobs under ids of its own. See
-- `keys_take_tx`, also for the number of locks.
with room as materialized (
  select coalesce(nullif(current_setting('forebay_tx.locks', true), '')::bigint, 0) as taken
)
select
  count(
    case when r.taken + n.nth <= 16 then pg_advisory_xact_lock(hashtextextended('forebay.jobs ' || n.id, 0))::text end
  ),
  set_config('forebay_tx.locks', (max(r.taken) + cardinality(%(ids)b::text[]))::text, true),
  case when max(r.taken) + cardinality(%(ids)b::text[]) > 16 then
    pg_advisory_xact_lock_shared(hashtextextended('forebay.many', 0))::text
  end
from room r
cross join unnest(%(ids)b::text[]) with ordinality as n (id, nth);

-- name: final_ids: those of these ids that a finished or dead job has. It runs after the insert of ids given by
-- callers. A job that was being settled during that insert is visible here, since the insert waited for it.
select id from forebay.finished where id = any(%(ids)b::text[])
union all
select id from forebay.dead where id = any(%(ids)b::text[]);

-- name: key_holders: jobs that hold these keys now. An expired idempotency key is held by no job. With `probes` also
-- keys without a holder that a caller transaction has taken (`keys_take_tx`); these come without a job. A row of nulls
-- means that a caller transaction has taken more keys or ids than it has locks for.
-- Guarantees: it waits for no lock. The probe takes the lock of the session and releases it at once, so a batch of any
-- size takes one entry of the lock table. It is shared, so two probes never meet. If two keys have the same hash, a
-- free key may look taken: the caller gets a busy error and retries.
-- Cost: one probe per key, see `delayed_take_due`.
select w.queue, w.kind, w.key, k.job_id
from unnest(%(queues)b::text[], %(kinds)b::text[], %(keys)b::text[]) as w (queue, kind, key)
cross join lateral (
  select hashtextextended('forebay.job_keys ' || w.queue || ' ' || w.kind || ' ' || w.key, 0) as lock_id offset 0
) as l
left join lateral (
  select job_id, held_until from forebay.job_keys where queue = w.queue and kind = w.kind and key = w.key offset 0
) as k on k.held_until is null or k.held_until > %(now)s
where k.job_id is not null
  or %(probes)s::boolean
  and not case when pg_try_advisory_lock_shared(l.lock_id) then pg_advisory_unlock_shared(l.lock_id) else false end
union all
select null, null, null, null
where %(probes)s::boolean
  and not case
    -- include: no_caller_holds_many

-- name: keys_free: release unique keys, but only those that name these very jobs.
-- Locks: in the order given, which is the same for every transaction.
-- Cost: one probe per key, see `delayed_take_due`.
delete from forebay.job_keys
where ctid = any(array(
  select k.ctid
  from unnest(%(queues)b::text[], %(keys)b::text[], %(job_ids)b::text[]) as w (queue, key, job_id)
  cross join lateral (
    select ctid
    from forebay.job_keys
    where queue = w.queue and kind = 'unique' and key = w.key and job_id = w.job_id
    for update
  ) as k
));

-- name: keys_prune: delete expired idempotency keys.
-- Index: job_keys_held_until, from the low-water mark on.
delete from forebay.job_keys
where ctid = any(array(
  select ctid
  from forebay.job_keys
  where held_until is not null and held_until >= %(since)s and held_until <= %(before)s
  order by held_until
  limit %(limit)s
  for update skip locked
))
returning held_until;

-- name: keys_take: give keys to jobs.
-- Guarantees: only an expired holder is replaced. Another transaction that takes the same key at the same time is
-- waited for, and then this key is not among the answers.
-- Locks: in the order given, which is the same for every transaction.
insert into forebay.job_keys as k (queue, kind, key, job_id, held_until)
select w.queue, w.kind, w.key, w.job_id, w.held_until
from unnest(
  %(queues)b::text[], %(kinds)b::text[], %(keys)b::text[], %(job_ids)b::text[], %(held_until)b::bigint[]
) as w (queue, kind, key, job_id, held_until)
on conflict (queue, kind, key) do update
set job_id = excluded.job_id, held_until = excluded.held_until
where k.held_until <= %(now)s
returning queue, kind, key;

-- name: keys_take_tx: what `keys_take` does, in a caller transaction. It also takes an advisory lock for each key until
-- that ends. So other transactions see that the key is taken before it is committed, and need not wait (`key_holders`).
-- Guarantees: another caller transaction that takes the same key is waited for, as in `keys_take`; no other transaction
-- holds such a lock for longer than a moment.
-- Locks: in the order of the keys, as everywhere. A transaction takes at most 16 such locks, however many calls it
-- makes: the lock table has 64 entries for each connection by default. A transaction with more keys holds one lock for
-- all the rest, shared with other such callers. While that is held, other transactions wait for a key only briefly
-- (`shorten_lock_timeout`).
with room as materialized (
  select coalesce(nullif(current_setting('forebay_tx.locks', true), '')::bigint, 0) as taken
),
wanted as materialized (
  select n.queue, n.kind, n.key, n.job_id, n.held_until,
    case when r.taken + n.nth <= 16 then
      pg_advisory_xact_lock(hashtextextended('forebay.job_keys ' || n.queue || ' ' || n.kind || ' ' || n.key, 0))::text
    end as lock
  from room r
  cross join unnest(
    %(queues)b::text[], %(kinds)b::text[], %(keys)b::text[], %(job_ids)b::text[], %(held_until)b::bigint[]
  ) with ordinality as n (queue, kind, key, job_id, held_until, nth)
),
counted as materialized (
  select set_config('forebay_tx.locks', (r.taken + cardinality(%(keys)b::text[]))::text, true) as locks,
    case when r.taken + cardinality(%(keys)b::text[]) > 16 then
      pg_advisory_xact_lock_shared(hashtextextended('forebay.many', 0))::text
    end as rest
  from room r
)
insert into forebay.job_keys as k (queue, kind, key, job_id, held_until)
select w.queue, w.kind, w.key, w.job_id, w.held_until
from counted
cross join wanted w
on conflict (queue, kind, key) do update
set job_id = excluded.job_id, held_until = excluded.held_until
where k.held_until <= %(now)s
returning queue, kind, key;

-- fragment: expected_queue: the queue, if it accepts jobs and has the settings that the caller has cached.
with queue as (
  -- The clock is volatile, so this is computed once, and all columns agree about the time.
  select forebay.now_ms() as now
  from forebay.queues
  where name = %(queue)s::text and state in ('active', 'paused') and settings = %(settings)s::text
),

-- fragment: insert_into_ready: narrow rows of the new jobs.
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select %(queue)s, false, rank, seq, id, %(expires_at)s
  from new
),

-- fragment: no_caller_holds_many: whether no caller transaction holds the lock that stands for more keys or ids than it
-- has locks for.
  when pg_try_advisory_lock(hashtextextended('forebay.many', 0))
    then pg_advisory_unlock(hashtextextended('forebay.many', 0))
  -- Another probe holds it for a moment, and only in this mode.
  else not exists (
    select 1
    from pg_locks l
    where l.locktype = 'advisory' and l.mode = 'ShareLock' and l.objsubid = 1
      and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('forebay.many', 0)
  )
end;
