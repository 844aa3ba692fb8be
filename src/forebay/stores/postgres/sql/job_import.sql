-- name: import_dead: store a dead job of another store. Its id is reserved (`import_reserve_ids`).
insert into forebay.dead (
  -- include: imported_final_row

-- name: import_finished: store a finished job of another store. Its id is reserved (`import_reserve_ids`).
insert into forebay.finished (
  -- include: imported_final_row

-- name: import_live: store a waiting job of another store. Its id is reserved (`import_reserve_ids`).
with new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, attempt, failures, crashes, created_at, updated_at, ready_at,
    run_at, rank, age_capped, rescore_at, worker, started_at, deadline_at, expires_at, unique_key, errors, payload,
    has_dependants
  )
  values (
    %(id)s, %(seq)s, %(queue)s, %(task)s, %(priority)s, %(options)s, %(attempt)s, %(failures)s, %(crashes)s,
    %(created_at)s, %(updated_at)s, %(ready_at)s, %(run_at)s, %(rank)s, %(age_capped)s, %(rescore_at)s, %(worker)s,
    %(started_at)s, %(deadline_at)s, %(expires_at)s, %(unique_key)s, %(errors)s, %(payload)s,
    exists (select 1 from forebay.dependencies where parent_id = %(id)s)
      or exists (select 1 from forebay.sequences where job_id = %(id)s)
  )
  returning id, queue, seq, rank, age_capped, run_at, expires_at
),
-- include: place_new_job
insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
select id, queue, run_at, seq, %(state)s::text, expires_at from new
where %(state)s::text = 'scheduled' or %(state)s::text = 'retrying';

-- name: import_release_ids: delete the placeholders of `import_reserve_ids` in the same transaction, to make room for
-- the jobs.
delete from forebay.jobs where id = any(%(ids)b::text[]);

-- name: import_reserve_ids: reserve ids until the transaction ends; answers those that no live job has.
-- Guarantees: an insert or import of one of them waits for this transaction and then finds its job. An earlier one is
-- waited for, and then its id is not among the answers.
insert into forebay.jobs (id, seq, queue, task, priority, created_at, updated_at, ready_at, run_at, rank, payload)
select n.id, n.seq, '', '', 0, 0, 0, 0, 0, 0, ''
from unnest(%(ids)b::text[], %(seqs)b::bigint[]) as n (id, seq)
order by n.id
on conflict (id) do nothing
returning id;

-- fragment: imported_final_row: columns and values of an imported job that has ended.
  id, seq, queue, task, state, priority, options, attempt, failures, crashes, created_at, updated_at, ready_at,
  run_at, rank, age_capped, worker, started_at, deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at,
  reason, payload, result
)
values (
  %(id)s, %(seq)s, %(queue)s, %(task)s, %(state)s, %(priority)s, %(options)s, %(attempt)s, %(failures)s,
  %(crashes)s, %(created_at)s, %(updated_at)s, %(ready_at)s, %(run_at)s, %(rank)s, %(age_capped)s, %(worker)s,
  %(started_at)s, %(deadline_at)s, %(expires_at)s, %(unique_key)s, %(cancel_reason)s, %(errors)s, %(finished_at)s,
  %(reason)s, %(payload)s, %(result)s
);
