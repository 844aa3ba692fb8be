-- schedules: schedules, all or by name, ordered by name behind `after`.
select definition, revision, is_paused, next_run_at, check_at, last_run_at, last_job_id, enqueued_runs, skipped_runs,
  failed_runs, created_at, updated_at
from forebay.schedules
where name > %(after)s
  and (%(names)b::text[] is null or name = any(%(names)b::text[]))
order by name
limit %(limit)s;
