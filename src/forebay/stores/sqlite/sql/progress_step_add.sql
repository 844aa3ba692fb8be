-- progress_step_add: add a step result; the first of a name stays, and a job has at most :max_steps.
-- Relies on steps never being removed one by one: the last position is their number.
insert into forebay_job_progress (seq, kind, position, name, attempt, recorded_at, body)
select :seq, 'step', coalesce(max(position), 0) + 1, :name, :attempt, :recorded_at, :body
from forebay_job_progress
where seq = :seq
  and kind = 'step'
having coalesce(max(position), 0) < :max_steps
on conflict do nothing;
