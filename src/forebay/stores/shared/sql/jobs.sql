-- name: outbox_set_cursor: store the last resolved edge of an outbox entry that has more edges than one transaction
-- takes.
update forebay.dependency_outbox
set cursor_child_id = :cursor_child_id::text, cursor_position = :cursor_position::bigint
where id = :id;

-- name: queues: all queues, dropped ones too.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
order by name;

-- name: failed_attempt: outcome by which this worker has settled this attempt, if it left a row.
select outcome
from forebay.failed_attempts
where job_id = :job_id and attempt = :attempt and settled_by = :worker;

-- name: failed_attempt_add: store an attempt that failed or was lost. (job, attempt) is unique: none is stored twice.
insert into forebay.failed_attempts (job_id, attempt, outcome, worker, settled_by, started_at, ended_at, error)
values (
  :job_id, :attempt, :outcome, :ran_by, :worker, :started_at, :now, :error
);

-- name: idempotency_until: the time until which a job holds its idempotency key.
select held_until
from forebay.job_keys
where queue = :queue and kind = 'idempotency' and key = :key and job_id = :job_id;
