-- note_step: a step that is done; the first of a name stays as it was, and a job has at most :most.
-- Relies on steps never being removed one by one: so the last number tells how many there are.
insert into forebay_notes (seq, kind, number, name, attempt, at, body)
select :seq, 'step', coalesce(max(number), 0) + 1, :name, :attempt, :at, :body
from forebay_notes
where seq = :seq
  and kind = 'step'
having coalesce(max(number), 0) < :most
on conflict do nothing;
