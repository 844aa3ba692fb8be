-- name: rescore: store new ranks of jobs that still wait where they were read; others get theirs when they wait again.
-- Guarantees: `moved` reads what `removed` has deleted, so the old row is gone before the new one comes. A locked row
-- is passed over: a claim takes it away anyway, and an update gives it a new rank.
-- Cost: no join with tables through which jobs flow, see `delayed_take_due`; a rank is probed as in `ready_lock`.
with p as materialized (
  select *
  from unnest(
    %(queues)b::text[], %(old_age_capped)b::boolean[], %(old_ranks)b::bigint[], %(seqs)b::bigint[]
  ) as p (queue, age_capped, rank, seq)
),
locked as materialized (
  select r.ctid
  from p
  cross join lateral (
    select ctid
    from forebay.ready
    where queue = p.queue
      and age_capped = p.age_capped
      and (rank, seq) >= (p.rank, p.seq)
      and (rank, seq) <= (p.rank, p.seq)
    order by rank, seq
    for update skip locked
  ) as r
),
removed as (
  delete from forebay.ready where ctid = any(array(select ctid from locked)) returning id
),
-- include: rescored_jobs
)
insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
select queue, age_capped, rank, seq, id, expires_at from moved;

-- name: rescore_drop: clear the rescore time of running jobs, which get a rank when they wait again.
-- Cost: one probe per job, see `delayed_take_due`.
update forebay.jobs
set rescore_at = null
where id = any(array(
  select j.id
  from unnest(%(ids)b::text[]) as i (id)
  cross join lateral (
    select id
    from forebay.jobs
    where id = i.id
      and rescore_at <= %(now)s
      and exists (select 1 from forebay.leases l where l.id = i.id offset 0)
    for update skip locked
  ) as j
));

-- name: rescore_due: jobs whose rank is to be computed again, soonest first.
-- Index: jobs_rescore (rescore_at), from the low-water mark on.
select id, seq, queue, ready_at, priority, failures, deadline_at, rank, age_capped, created_at
from forebay.jobs
where rescore_at is not null and rescore_at >= %(since)s and rescore_at <= %(now)s
order by rescore_at, seq
limit %(limit)s;

-- name: rescore_lane: what `rescore` does, for jobs in side lanes of the queue in which they were read.
with locked as materialized (
  select ctid
  from forebay.side_lanes
  where id = any(%(ids)b::text[]) and queue = (%(queues)b::text[])[array_position(%(ids)b::text[], id)]
  for update skip locked
),
removed as (
  delete from forebay.side_lanes where ctid = any(array(select ctid from locked)) returning id, lane
),
-- include: rescored_jobs
)
insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
select m.id, m.queue, g.lane, m.age_capped, m.rank, m.seq, m.expires_at
from moved m
join removed g on g.id = m.id;

-- name: rescoring_queues: queues whose change of scoring is not carried out yet.
-- Locks: SKIP LOCKED, so two transactions do not rescore one queue.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
where rescored_to_seq is not null
order by name
for update skip locked;

-- name: scan_mark_save: store an id that was given out before this statement. A transaction with a lower id is running
-- by now, except between drawing the id and writing it. So a low-water mark stays some ids below.
insert into forebay.maintenance (name, due_at, scan_position)
values (%(name)s, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, %(scan_position)s)
on conflict (name) do update
set due_at = excluded.due_at,
    scan_position = excluded.scan_position;

-- name: scan_next: the next live jobs of all queues by seq.
-- Index: jobs_seq.
select id, seq, queue, ready_at, priority, failures, deadline_at, rank, age_capped, created_at
from forebay.jobs
where seq > %(after)s
order by seq
limit %(limit)s;

-- name: rank_span: the lowest and the highest rank of the uncapped class of a queue, for an estimate.
select
  (select rank from forebay.ready where queue = %(queue)s and age_capped = false order by rank limit 1),
  (select rank from forebay.ready where queue = %(queue)s and age_capped = false order by rank desc limit 1);

-- fragment: rescored_jobs: give the jobs of removed narrow rows their new ranks.
moved as (
  update forebay.jobs j
  set (rank, age_capped, rescore_at) = (
    select (%(ranks)b::bigint[])[n.i], (%(age_capped)b::boolean[])[n.i], (%(rescores)b::bigint[])[n.i]
    from (select array_position(%(ids)b::text[], j.id) as i) as n
  )
  where j.id = any(array(select id from removed))
  returning j.queue, j.age_capped, j.rank, j.seq, j.id, j.expires_at
