-- schedule_runs_add: store runs, in the order given.
insert into forebay.schedule_runs (schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs)
select schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs
from unnest(
  %(schedule)b::text[], %(planned_at)b::bigint[], %(status)b::text[], %(recorded_at)b::bigint[], %(job_id)b::text[],
  %(reason)b::text[], %(last_planned_at)b::bigint[], %(runs)b::bigint[]
) with ordinality as f (schedule, planned_at, status, recorded_at, job_id, reason, last_planned_at, runs, nth)
order by nth;
