-- name: acquire_maintenance: acquire a maintenance task; one changed row means that the caller has it. The write
-- lock admits one caller.
-- A due time further ahead than `every_ms` was written before the clock was set back.
insert into forebay_maintenance (name, due_at)
values (:name, :now + :every_ms)
on conflict (name) do update
set due_at = excluded.due_at
where forebay_maintenance.due_at <= :now
   or forebay_maintenance.due_at > :now + :every_ms;

-- name: maintenance_due: time at which a maintenance task is due again.
select due_at from forebay_maintenance where name = :name;

-- name: prunable_dead: dead jobs of a queue past their retention, oldest first.
-- Index: forebay_dead_queue (queue, finished_at).
select seq, id, queue, task, state, created_at, finished_at, started_at, attempt, failures, reason,
  substr(result, 1, 800) as excerpt
from forebay_dead
where queue = :queue
  and finished_at <= :before
order by finished_at, seq
limit :limit;

-- name: prunable_finished: finished jobs of a queue past their retention, oldest first.
-- Index: forebay_finished_queue (queue, finished_at).
select seq, id, queue, task, state, created_at, finished_at, started_at, attempt, failures, reason,
  substr(result, 1, 800) as excerpt
from forebay_finished
where queue = :queue
  and finished_at <= :before
order by finished_at, seq
limit :limit;

-- name: clock_readings: recorded readings of the clock, by slot.
-- Index: primary key of forebay_maintenance, one probe for each slot.
select name, due_at
from forebay_maintenance
where name in (select value from json_each(:names));
