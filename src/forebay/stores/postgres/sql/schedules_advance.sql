-- schedules_advance: store how far schedules have come that the caller has locked; their definitions stay.
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
