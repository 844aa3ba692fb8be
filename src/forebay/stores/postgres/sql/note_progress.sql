-- note_progress: how far an attempt has come, in place of what was said before.
insert into forebay.notes (job_id, kind, number, attempt, at, body)
values (%(job_id)s, 'progress', 0, %(attempt)s, %(at)s, %(body)s)
on conflict (job_id, kind, number) do update
set attempt = excluded.attempt,
    at = excluded.at,
    body = excluded.body;
