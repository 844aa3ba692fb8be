-- name: outbox_add: add jobs to the dependency outbox that have dependants, or successors in a sequence.
-- Index: forebay_dependencies_parent, forebay_sequences_job.
insert into forebay_dependency_outbox (job_id, event)
select value, :event
from json_each(:job_ids)
where exists (select 1 from forebay_dependencies where parent_id = value)
  or exists (select 1 from forebay_sequences where job_id = value)
order by key;

-- name: outbox_completed: oldest outbox entries, as long as they are of completed jobs.
select id, job_id, cursor_child_id, cursor_position
from forebay_dependency_outbox
where id < coalesce(
  (select id from forebay_dependency_outbox where event <> 'completed' order by id limit 1), 9223372036854775807
)
order by id
limit :limit;

-- name: outbox_for_jobs: outbox entries of completed or removed jobs, with their cursors.
select job_id, cursor_child_id, cursor_position
from forebay_dependency_outbox
where job_id in (select value from json_each(:job_ids)) and (event = 'completed' or event = 'deleted');

-- name: outbox_next: oldest outbox entry.
select id, job_id, event from forebay_dependency_outbox order by id limit 1;

-- name: outbox_remove: remove an outbox entry that is resolved.
delete from forebay_dependency_outbox where id = :id;

-- name: outbox_remove_all: remove the oldest outbox entries, which are resolved.
delete from forebay_dependency_outbox where id <= :id;
