-- archive_add: store the archive entry of a pruned job. It refers to nothing, so no deletion takes it along.
insert into forebay.job_archive (
  job_id, queue, task, state, created_at, finished_at, day, duration_ms, attempt, failures, excerpt, reason
)
values (
  %(job_id)s, %(queue)s, %(task)s, %(state)s, %(created_at)s, %(finished_at)s, %(day)s, %(duration_ms)s,
  %(attempt)s, %(failures)s, %(excerpt)s, %(reason)s
);
