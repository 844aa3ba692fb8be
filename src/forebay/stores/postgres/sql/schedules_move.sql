-- schedules_move: write how far schedules have come, that the caller has locked; what they shall do stays.
update forebay.schedules as s
set revision = m.revision,
    next_at = m.next_at,
    due_at = m.due_at,
    last_at = m.last_at,
    last_job_id = m.last_job_id,
    fired = m.fired,
    skipped = m.skipped,
    failed = m.failed,
    updated_at = m.updated_at
from unnest(
  %(name)b::text[], %(revision)b::bigint[], %(next_run_at)b::bigint[], %(check_at)b::bigint[], %(last_run_at)b::bigint[],
  %(last_job_id)b::text[], %(enqueued_runs)b::bigint[], %(skipped_runs)b::bigint[], %(failed_runs)b::bigint[],
  %(updated_at)b::bigint[]
) as m (name, revision, next_at, due_at, last_at, last_job_id, fired, skipped, failed, updated_at)
where s.name = m.name;
