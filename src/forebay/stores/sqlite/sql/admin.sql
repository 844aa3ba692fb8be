-- name: update_job: update a job that is still in :old_state.
update forebay_jobs
set state = :state,
    queue = :queue,
    -- In another queue a claim decides anew which lane it belongs to.
    lane = iif(:is_moved, null, lane),
    priority = :priority,
    -- Only this member: others may come from a newer program.
    options = case
      when :metadata is null then options
      else json_set(coalesce(iif(json_valid(options), options, null), '{}'), '$.metadata', json(:metadata))
    end,
    run_at = :run_at,
    ready_at = :ready_at,
    rank = :rank,
    age_capped = :age_capped,
    -- A job that keeps its rank keeps the time of its rescore.
    rescore_at = iif(:has_rank, :rescore_at, rescore_at),
    updated_at = :now
where seq = :seq
  and id = :job_id
  and state = :old_state;

-- name: cancel_request: store a request to stop a running job; the first request stays.
update forebay_jobs
set cancel_reason = :reason
where seq = :seq
  and id = :job_id
  and state = 'running'
  and cancel_reason is null
returning queue;

-- name: finish_waiting: copy a waiting job to the finished ones, as cancelled.
-- Guarantees: never a running job; `remove_waiting` follows in the same transaction.
insert into forebay_finished (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select
  seq, id, has_custom_id, queue, task, 'cancelled', priority, options, attempt, failures, crashes, created_at, :now,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, :now, :reason, payload, null
from forebay_jobs
where seq = :seq
  and id = :job_id
  and (state = 'pending' or state = 'scheduled' or state = 'retrying' or state = 'blocked');

-- name: mark_dead_running: copy a running job to the dead letters whose lease an operator takes away. The worker is
-- cleared, so that its settlement is refused and not taken for a repeated one.
-- Guarantees: only a running job; `remove_running` follows in the same transaction.
insert into forebay_dead (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select
  seq, id, has_custom_id, queue, task, 'dead', priority, options, attempt, failures, crashes, created_at, :now,
  ready_at, run_at, rank, age_capped, null, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, :now, :reason, payload, null
from forebay_jobs
where seq = :seq
  and id = :job_id
  and state = 'running';

-- name: mark_dead_waiting: copy a waiting job to the dead letters.
-- Guarantees: never a running job; `remove_waiting` follows in the same transaction.
insert into forebay_dead (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, finished_at, reason, payload, result
)
select
  seq, id, has_custom_id, queue, task, 'dead', priority, options, attempt, failures, crashes, created_at, :now,
  ready_at, run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason,
  errors, :now, :reason, payload, null
from forebay_jobs
where seq = :seq
  and id = :job_id
  and (state = 'pending' or state = 'scheduled' or state = 'retrying' or state = 'blocked');

-- name: revive_dead: copy a dead job back to the live ones, under its own seq. `attempt` goes on growing.
-- Guarantees: only a dead job; `remove_dead` follows in the same transaction.
-- include: revived_row
from forebay_dead
where seq = :seq
  and id = :job_id
  and state = 'dead';

-- name: revive_finished: copy a cancelled job back to the live ones, under its own seq. `attempt` goes on growing.
-- Guarantees: only a cancelled job; `remove_finished` follows in the same transaction.
-- include: revived_row
from forebay_finished
where seq = :seq
  and id = :job_id
  and state = 'cancelled';

-- name: remove_dead: remove one job from the dead ones.
delete from forebay_dead
where seq = :seq
  and id = :job_id
returning queue;

-- name: remove_finished: remove one job from the finished ones.
delete from forebay_finished
where seq = :seq
  and id = :job_id
returning queue;

-- name: remove_running: remove a job from the live ones whose lease an operator has just taken away.
delete from forebay_jobs
where seq = :seq
  and id = :job_id
  and state = 'running'
returning queue, unique_key, attempt;

-- name: remove_waiting: remove a waiting job from the live ones; never a running one.
delete from forebay_jobs
where seq = :seq
  and id = :job_id
  and (state = 'pending' or state = 'scheduled' or state = 'retrying' or state = 'blocked')
returning queue, state, unique_key;

-- fragment: revived_row: columns and values of a revived job.
insert into forebay_jobs (
  seq, id, has_custom_id, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at,
  ready_at, run_at, rank, age_capped, rescore_at, deadline_at, expires_at, unique_key, errors, unmet, payload
)
select
  seq, id, has_custom_id, :queue, task, :state, priority, options, attempt, :failures, :crashes, created_at, :now,
  :due_at, :due_at, :rank, :age_capped, :rescore_at, deadline_at, case when expires_at > :now then expires_at end,
  unique_key, errors, :unmet, payload
