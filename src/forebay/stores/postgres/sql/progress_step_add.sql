-- progress_step_add: a step that is done; the first of a name stays as it was, and a job has at most so many.
-- Relies on steps never being removed one by one: so the last number tells how many there are.
insert into forebay.job_progress (job_id, kind, position, name, attempt, recorded_at, body)
select %(job_id)s::text, 'step', coalesce(max(position), 0) + 1, %(name)s::text, %(attempt)s, %(recorded_at)s,
  %(body)s::bytea
from forebay.job_progress
where job_id = %(job_id)s::text
  and kind = 'step'
having coalesce(max(position), 0) < %(max_steps)s
on conflict (job_id, name) where kind = 'step' do nothing;
