-- note_line: one more log line of a job, after the others if it has no :place of its own. One that is there
-- already was offered again. Relies on the primary key: the last number is one seek away.
insert into forebay_notes (seq, kind, number, attempt, at, body)
select :seq, 'line', coalesce(:place, max(number) + 1, 1), :attempt, :at, :body
from forebay_notes
where seq = :seq
  and kind = 'line'
on conflict (seq, kind, number) do nothing;
