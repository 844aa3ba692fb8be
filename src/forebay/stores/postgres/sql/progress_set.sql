-- progress_set: store how far an attempt has come, in place of its earlier report.
insert into forebay.job_progress (job_id, kind, position, attempt, recorded_at, body)
values (%(job_id)s, 'progress', 0, %(attempt)s, %(recorded_at)s, %(body)s)
on conflict (job_id, kind, position) do update
set attempt = excluded.attempt,
    recorded_at = excluded.recorded_at,
    body = excluded.body;
