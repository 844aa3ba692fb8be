-- archive: lines about pruned jobs, last ended first.
select id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
from forebay_archive
where (:day is null or day = :day)
  and (:task is null or task = :task)
order by finished_at desc, number desc
limit :limit;
