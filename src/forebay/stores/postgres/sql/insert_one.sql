-- insert_one: insert a job that is ready now, if its queue is open and has the settings that the caller knows.
-- Guarantees: one statement that waits for no lock, so it needs no transaction around it. No row means that nothing was
-- written, since the queue has changed.
with queue as (
  -- The clock is volatile, so this is computed once, and all columns agree about the time.
  select forebay.now_ms() as now
  from forebay.queues
  where name = %(queue)s::text and state in ('active', 'paused') and settings = %(settings)s::text
),
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
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select %(queue)s, false, rank, seq, id, %(expires_at)s
  from new
),
counted as (
  insert into forebay.queue_count_deltas (queue, state, jobs)
  select %(queue)s, 'pending', 1
  from new
  returning jobs
)
select jobs, case when %(channel)s::text is not null then pg_notify(%(channel)s, '')::text end
from counted;
