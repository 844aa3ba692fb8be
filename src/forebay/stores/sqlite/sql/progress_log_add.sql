-- progress_log_add: add a log line of a job, after the others if it has no :position of its own. A line that
-- exists was offered again.
-- Index: primary key; the last position is one seek away.
insert into forebay_job_progress (seq, kind, position, attempt, recorded_at, body)
select :seq, 'log', coalesce(:position, max(position) + 1, 1), :attempt, :recorded_at, :body
from forebay_job_progress
where seq = :seq
  and kind = 'log'
on conflict (seq, kind, position) do nothing;
