-- note_progress: how far an attempt has come, in place of what was said before.
insert into forebay_notes (seq, kind, number, attempt, at, body)
values (:seq, 'progress', 0, :attempt, :at, :body)
on conflict (seq, kind, number) do update
set attempt = excluded.attempt,
    at = excluded.at,
    body = excluded.body;
