-- archive_add: the line that stays of a pruned job. It refers to nothing, so nothing can take it along.
insert into forebay.job_archive (
  job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
)
values (
  %(job_id)s, %(queue)s, %(task)s, %(state)s, %(created_at)s, %(finished_at)s, %(day)s, %(duration_ms)s,
  %(attempt)s, %(failures)s, %(excerpt)s, %(reason)s
);
