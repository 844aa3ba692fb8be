-- note_step: a step that is done; the first of a name stays as it was, and a job has at most so many.
-- Relies on steps never being removed one by one: so the last number tells how many there are.
insert into forebay.notes (job_id, kind, number, name, attempt, at, body)
select %(job_id)s::text, 'step', coalesce(max(number), 0) + 1, %(name)s::text, %(attempt)s, %(at)s,
  %(body)s::bytea
from forebay.notes
where job_id = %(job_id)s::text
  and kind = 'step'
having coalesce(max(number), 0) < %(most)s
on conflict (job_id, name) where kind = 'step' do nothing;
