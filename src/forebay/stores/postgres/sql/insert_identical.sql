-- insert_identical: what `insert_one` does, for jobs that differ only in id, options and payload.
-- Guarantees: the order of the arrays is the order of the seqs.
with queue as (
  select forebay.now_ms() as now
  from forebay.queues
  where name = %(queue)s::text and state in ('active', 'paused') and settings = %(settings)s::text
),
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
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select %(queue)s, false, rank, seq, id, %(expires_at)s
  from new
),
counted as (
  insert into forebay.queue_count_deltas (queue, state, jobs)
  select %(queue)s, 'pending', count(*)
  from new
  having count(*) > 0
  returning jobs
)
select jobs, case when %(channel)s::text is not null then pg_notify(%(channel)s, '')::text end
from counted;
