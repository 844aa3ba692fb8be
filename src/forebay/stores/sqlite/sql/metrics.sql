-- name: metric_remove: remove one row that was merged into another one.
delete from forebay_metrics
where resolution_ms = :resolution_ms
  and starts_at = :starts_at
  and queue = :queue
  and worker = :worker;

-- name: metric_save: save one row, in place of the one with the same key.
insert into forebay_metrics (resolution_ms, starts_at, queue, worker, body)
values (:resolution_ms, :starts_at, :queue, :worker, :body)
on conflict (resolution_ms, starts_at, queue, worker) do update
set body = excluded.body;

-- name: metrics_prune: remove the oldest rows of one resolution, up to the start at which there are :limit of them.
delete from forebay_metrics
where resolution_ms = :resolution_ms
  and starts_at < :before
  and starts_at <= coalesce(
    (select starts_at from forebay_metrics where resolution_ms = :resolution_ms order by starts_at limit 1 offset :limit - 1),
    :before
  );
