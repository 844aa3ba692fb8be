-- archive: archive entries of pruned jobs, last finished first.
-- Index: job_archive_day, or job_archive_task with a task; one of the two parts is empty. Days grow with the time of
-- finishing, so both orders are the same.
select *
from (
  select job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
  from forebay.job_archive
  where %(task)s::text is null
    and day >= coalesce(%(day)s::text, '')
    and day <= coalesce(%(day)s::text, '~')
  order by day desc, finished_at desc, entry_id desc
  limit %(limit)s
) as by_day
union all
select *
from (
  select job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
  from forebay.job_archive
  where task = %(task)s::text
    and (%(day)s::text is null or day = %(day)s::text)
  order by finished_at desc, entry_id desc
  limit %(limit)s
) as by_task;
