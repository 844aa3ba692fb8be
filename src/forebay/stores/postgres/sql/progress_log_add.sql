-- progress_log_add: store a log line of a job, behind the others if it has no position of its own. A line that is there
-- was offered again.
-- Guarantees: the lease is locked, so no other transaction assigns positions at the same time.
insert into forebay.job_progress (job_id, kind, position, attempt, recorded_at, body)
select %(job_id)s::text, 'log', coalesce(%(position)s::bigint, max(position) + 1, 1), %(attempt)s, %(recorded_at)s,
  %(body)s::bytea
from forebay.job_progress
where job_id = %(job_id)s::text
  and kind = 'log'
on conflict (job_id, kind, position) do nothing;
