-- progress_set: save the progress of an attempt, in place of the earlier one.
insert into forebay_job_progress (seq, kind, position, attempt, recorded_at, body)
values (:seq, 'progress', 0, :attempt, :recorded_at, :body)
on conflict (seq, kind, position) do update
set attempt = excluded.attempt,
    recorded_at = excluded.recorded_at,
    body = excluded.body;
