-- archive: archive lines of pruned jobs, last ended first.
-- Index: forebay_job_archive_day (day, finished_at), or with a :task forebay_job_archive_task (task,
-- finished_at); one of the two parts is empty. Days grow with the time of the end, so their order is the
-- same.
select *
from (
  select job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
  from forebay_job_archive
  where :task is null
    and day >= coalesce(:day, '')
    and day <= coalesce(:day, '~')
  order by day desc, finished_at desc, entry_id desc
  limit :limit
)
union all
select *
from (
  select job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
  from forebay_job_archive
  where task = :task
    and (:day is null or day = :day)
  order by finished_at desc, entry_id desc
  limit :limit
);
