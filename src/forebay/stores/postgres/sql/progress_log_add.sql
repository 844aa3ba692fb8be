-- progress_log_add: one more log line of a job, after the others if it has no place of its own. One that is there
-- already was offered again. The lease is locked, so nobody else counts at the same time.
insert into forebay.job_progress (job_id, kind, position, attempt, recorded_at, body)
select %(job_id)s::text, 'log', coalesce(%(position)s::bigint, max(position) + 1, 1), %(attempt)s, %(recorded_at)s,
  %(body)s::bytea
from forebay.job_progress
where job_id = %(job_id)s::text
  and kind = 'log'
on conflict (job_id, kind, position) do nothing;
