-- metric_save: save one row, in place of the one with the same key.
insert into forebay_metrics (resolution_ms, starts_at, queue, worker, body)
values (:resolution_ms, :starts_at, :queue, :worker, :body)
on conflict (resolution_ms, starts_at, queue, worker) do update
set body = excluded.body;
