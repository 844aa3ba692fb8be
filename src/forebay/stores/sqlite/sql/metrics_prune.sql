-- metrics_prune: remove the oldest rows of one resolution, up to the start at which there are :limit of them.
delete from forebay_metrics
where resolution_ms = :resolution_ms
  and starts_at < :before
  and starts_at <= coalesce(
    (select starts_at from forebay_metrics where resolution_ms = :resolution_ms order by starts_at limit 1 offset :limit - 1),
    :before
  );
