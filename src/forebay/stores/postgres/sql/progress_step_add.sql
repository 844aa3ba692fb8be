-- progress_step_add: store the result of a step; the first of a name stays, and a job has at most `max_steps`.
-- Returns the bytes of the results before this one; nothing if it was not added. Values out of line are not read.
-- Guarantees: steps are never deleted one by one, so the last position tells how many there are.
insert into forebay.job_progress (job_id, kind, position, name, attempt, recorded_at, body)
select %(job_id)s::text, 'step', coalesce(max(position), 0) + 1, %(name)s::text, %(attempt)s, %(recorded_at)s,
  %(body)s::bytea
from forebay.job_progress
where job_id = %(job_id)s::text
  and kind = 'step'
having coalesce(max(position), 0) < %(max_steps)s
on conflict (job_id, name) where kind = 'step' do nothing
returning (
  select coalesce(sum(octet_length(body)), 0)::bigint
  from forebay.job_progress
  where job_id = %(job_id)s::text
    and kind = 'step'
);
