-- note_line: one more log line of a job, after the others if it has no place of its own. One that is there
-- already was offered again. The lease is locked, so nobody else counts at the same time.
insert into forebay.notes (job_id, kind, number, attempt, at, body)
select %(job_id)s::text, 'line', coalesce(%(place)s::bigint, max(number) + 1, 1), %(attempt)s, %(at)s,
  %(body)s::bytea
from forebay.notes
where job_id = %(job_id)s::text
  and kind = 'line'
on conflict (job_id, kind, number) do nothing;
