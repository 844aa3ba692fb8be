-- name: schedule_lock: lock one schedule until the transaction ends.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
from forebay.schedules
where name = %(name)s
for update;

-- name: schedule_remove: delete a schedule; a row means that there was one.
delete from forebay.schedules
where name = %(name)s
returning 1;

-- name: schedule_runs_add: store runs, in the order given.
insert into forebay.schedule_runs (schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs)
select schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs
from unnest(
  %(schedule)b::text[], %(planned_at)b::bigint[], %(status)b::text[], %(recorded_at)b::bigint[], %(job_id)b::text[],
  %(reason)b::text[], %(last_planned_at)b::bigint[], %(runs)b::bigint[]
) with ordinality as f (schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs, nth)
order by nth;

-- name: schedule_runs_trim: delete all but the newest `limit` entries of the history of a schedule.
-- Index: schedule_runs_schedule (schedule, id).
delete from forebay.schedule_runs
where id in (
  select id
  from forebay.schedule_runs
  where schedule = %(schedule)s
  order by id desc
  offset %(limit)s
);

-- name: schedule_save: store a schedule. A row means that it is stored: of two inserts of one name at once the second
-- waits for the first and then finds another revision.
insert into forebay.schedules as s (
  name, definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
)
values (
  %(name)s, %(definition)s, %(revision)s, %(is_paused)s, %(next_run_at)s, %(check_at)s, %(last_run_at)s, %(last_job_id)s,
  %(enqueued_runs)s, %(skipped_runs)s, %(failed_runs)s, %(created_at)s, %(updated_at)s
)
on conflict (name) do update
set definition = excluded.definition,
    revision = excluded.revision,
    is_paused = excluded.is_paused,
    next_run_at = excluded.next_run_at,
    check_at = excluded.check_at,
    last_run_at = excluded.last_run_at,
    last_job_id = excluded.last_job_id,
    enqueued_runs = excluded.enqueued_runs,
    skipped_runs = excluded.skipped_runs,
    failed_runs = excluded.failed_runs,
    updated_at = excluded.updated_at
where s.revision = excluded.revision - 1
returning 1;

-- name: schedules: schedules, all or by name, ordered by name behind `after`.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
from forebay.schedules
where name > %(after)s
  and (%(names)b::text[] is null or name = any(%(names)b::text[]))
order by name
limit %(limit)s;

-- name: schedules_advance: store how far schedules have come that the caller has locked; their definitions stay.
update forebay.schedules as s
set revision = m.revision,
    next_run_at = m.next_run_at,
    check_at = m.check_at,
    last_run_at = m.last_run_at,
    last_job_id = m.last_job_id,
    enqueued_runs = m.enqueued_runs,
    skipped_runs = m.skipped_runs,
    failed_runs = m.failed_runs,
    updated_at = m.updated_at
from unnest(
  %(name)b::text[], %(revision)b::bigint[], %(next_run_at)b::bigint[], %(check_at)b::bigint[], %(last_run_at)b::bigint[],
  %(last_job_id)b::text[], %(enqueued_runs)b::bigint[], %(skipped_runs)b::bigint[], %(failed_runs)b::bigint[],
  %(updated_at)b::bigint[]
) as m (
  name, revision, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs, failed_runs, updated_at
)
where s.name = m.name;

-- name: schedules_due: schedules to be checked, earliest first.
-- Locks: SKIP LOCKED, so that several schedulers share the work and do not do it twice.
-- Index: schedules_check (check_at, name).
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
from forebay.schedules
where check_at <= %(now)s
order by check_at, name
limit %(limit)s
for key share skip locked;

-- name: schedules_lock: lock schedules until the transaction ends.
-- Locks: by name, SKIP LOCKED: a schedule that is being fired or changed is passed over.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
from forebay.schedules
where name = any(%(names)b::text[])
order by name
for update skip locked;
