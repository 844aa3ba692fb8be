-- insert_graph: what `insert_identical` does, for jobs that differ in their tasks too, or depend on each other. Jobs
-- with parents are blocked, and their edges come with them.
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
