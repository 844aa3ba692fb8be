-- progress_step_add: a step that is done; the first of a name stays as it was, and a job has at most :most.
-- Relies on steps never being removed one by one: so the last number tells how many there are.
insert into forebay_job_progress (seq, kind, position, name, attempt, recorded_at, body)
select :seq, 'step', coalesce(max(position), 0) + 1, :name, :attempt, :recorded_at, :body
from forebay_job_progress
where seq = :seq
  and kind = 'step'
having coalesce(max(position), 0) < :max_steps
on conflict do nothing;
