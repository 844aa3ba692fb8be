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
  %(names)b::text[], %(revisions)b::bigint[], %(next_ats)b::bigint[], %(due_ats)b::bigint[], %(last_ats)b::bigint[],
  %(last_job_ids)b::text[], %(fireds)b::bigint[], %(skippeds)b::bigint[], %(faileds)b::bigint[],
  %(updated_ats)b::bigint[]
) as m (name, revision, next_at, due_at, last_at, last_job_id, fired, skipped, failed, updated_at)
where s.name = m.name;
