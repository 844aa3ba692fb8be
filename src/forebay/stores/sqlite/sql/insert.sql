-- name: insert: insert one new live job.
-- Guarantees: a seq or a brought id that is taken fails.
insert into forebay_jobs (
  has_custom_id, queue, task, state, priority, created_at, updated_at, ready_at, run_at, rank, age_capped, rescore_at,
  deadline_at, expires_at, unmet, seq, id, options, unique_key, payload
)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: insert_many: insert new live jobs that have all but the last five values in common.
-- Guarantees: a seq or a brought id that is taken fails the whole call.
-- Cost: the line of values is repeated for each job, 2.9 us a row; with all values in each row it took 5.5.
insert into forebay_jobs (
  has_custom_id, queue, task, state, priority, created_at, updated_at, ready_at, run_at, rank, age_capped, rescore_at,
  deadline_at, expires_at, unmet, seq, id, options, unique_key, payload
)
select ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, new.*
from (values
(?, ?, ?, ?, ?)
) as new;

-- name: last_seq: greatest seq that was given. A job is in one of the three tables until it is removed. A counted
-- and then deleted job must not have its seq reused, or the next job would not be counted.
select max(
  coalesce((select jobs from forebay_queue_counts where queue = '' and state = 'counted'), 0),
  coalesce((select max(seq) from forebay_jobs), 0),
  coalesce((select max(seq) from forebay_finished), 0),
  coalesce((select max(seq) from forebay_dead), 0)
);

-- name: locate: seq and state of a job by its id, whatever table it is in. A generated id contains its seq (:seq);
-- an id that a caller brought is looked up.
-- Index: the rowid and the id index of each table.
select seq, state from forebay_all_jobs where seq = :seq and id = :job_id
union all
select seq, state from forebay_all_jobs where has_custom_id = 1 and id = :job_id
limit 1;

-- name: uncounted: jobs inserted since the last count, with the greatest seq among them.
-- Index: the rowid, a range at the end of the table.
select queue, state, count(*), max(seq)
from forebay_jobs
where seq > coalesce((select jobs from forebay_queue_counts where queue = '' and state = 'counted'), 0)
group by queue, state;

-- name: counted_seq_save: record that the counters include all jobs up to this seq.
insert into forebay_queue_counts (queue, state, jobs)
values ('', 'counted', :counted)
on conflict (queue, state) do update
set jobs = excluded.jobs;

-- name: count_of: counter of one queue and state.
select jobs from forebay_queue_counts where queue = :queue and state = :state;

-- name: key_free: release a unique key, only if it names this very job.
delete from forebay_job_keys
where queue = :queue
  and kind = 'unique'
  and key = :key
  and job_id = :job_id;

-- name: key_holder: current holder of a key. An expired idempotency key has no holder.
select job_id
from forebay_job_keys
where queue = :queue
  and kind = :kind
  and key = :key
  and (held_until is null or held_until > :now);

-- name: key_take: give a key to a job. Only an expired holder is replaced; the caller has checked the key before,
-- in the same transaction.
insert into forebay_job_keys (queue, kind, key, job_id, held_until)
values (:queue, :kind, :key, :job_id, :held_until)
on conflict (queue, kind, key) do update
set job_id = excluded.job_id, held_until = excluded.held_until
where forebay_job_keys.held_until <= :now;

-- name: keys_prune: remove expired idempotency keys. Index: forebay_job_keys_held_until.
delete from forebay_job_keys
where (queue, kind, key) in (
  select queue, kind, key
  from forebay_job_keys
  where held_until is not null
    and held_until <= :now
  order by held_until
  limit :limit
);
