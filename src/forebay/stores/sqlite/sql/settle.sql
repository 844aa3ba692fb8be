-- name: lease_details: values to settle an attempt that did not complete, if the lease is still held.
select queue, cancel_reason, errors, started_at, swept_from, ready_at, priority, deadline_at,
  rank, age_capped
from forebay_jobs
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';

-- name: complete: copy completed running jobs to the finished ones; :ended is an object with the id of each by its
-- seq.
-- Guarantees: only while the lease is held (state, attempt, worker); `complete_remove` removes the copied
-- jobs from the live ones in the same transaction.
-- Cost: one statement with one result for all of them, 1.7 us a job. With values for each job, 64 at a time,
-- it took 3.1, and another 1.6 to return which were copied.
insert into forebay_finished (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select
  job.seq, job.id, has_custom_id, queue, task, 'completed', priority, options, attempt, :failures, :crashes,
  created_at, :now, ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key,
  cancel_reason, errors, :now, :reason, payload, :result
-- `cross`: the few that ended lead to their jobs, and never the other way round.
from json_each(:ended) as ended cross join forebay_jobs as job
where job.seq = ended.key
  and job.id = ended.value
  and attempt = :attempt
  and worker = :worker
  and state = 'running';

-- name: complete_remove: remove jobs from the live ones that were just copied to the finished ones. No job is ever
-- in both tables, so those that are have just been copied.
delete from forebay_jobs
where seq in (select value from json_each(:seqs))
  and exists (select 1 from forebay_finished as copy where copy.seq = forebay_jobs.seq)
returning seq, queue, unique_key;

-- name: complete_result: store the result of a job that was just copied, where it differs from the result of the
-- others.
update forebay_finished
set result = :result
where seq = :seq;

-- name: finish: copy a running job that completed, or was cancelled, to the finished ones.
-- Guarantees: only while the lease is held (state, attempt, worker); `finish_remove` follows in the same
-- transaction.
insert into forebay_finished (
  -- include: final_row
  seq, id, has_custom_id, queue, task, :state, priority, options, attempt, :failures, :crashes, created_at, :now,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, :now, :reason, payload, :result
-- include: attempt_by_token

-- name: finish_remove: remove a job from the live ones that was just copied to the finished or the dead ones.
-- Guarantees: the same guard as the copy; the transaction holds the write lock in between.
delete from forebay_jobs
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running'
returning queue, unique_key;

-- name: mark_dead: copy a running job that is not tried again to the dead letters.
-- Guarantees: only while the lease is held (state, attempt, worker).
insert into forebay_dead (
  -- include: final_row
  seq, id, has_custom_id, queue, task, 'dead', priority, options, attempt, :failures, :crashes, created_at, :now,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, :now, :reason, payload, :result
-- include: attempt_by_token

-- name: return_to_queue: put a running job back to waiting: handed back, snoozed, or to be retried.
-- Guarantees: only while the lease is held (state, attempt, worker). `ready_at` is kept. The worker stays on
-- the row, so that a repeated settlement is recognised.
update forebay_jobs
set state = :state,
    failures = :failures,
    crashes = :crashes,
    run_at = :run_at,
    rank = :rank,
    age_capped = :age_capped,
    rescore_at = :rescore_at,
    lane = :lane,
    lease_expires_at = null,
    updated_at = :now
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';

-- name: errors_save: store the last ten errors of a job whose lease is held.
update forebay_jobs
set errors = :errors
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';

-- fragment: final_row: columns of `finished` and `dead`.
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select

-- fragment: attempt_by_token: the running attempt under its whole token.
from forebay_jobs
where seq = :seq
  and id = :job_id
  and attempt = :attempt
  and worker = :worker
  and state = 'running';
