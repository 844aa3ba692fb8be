-- metrics_prune: delete the oldest rows of one resolution, up to the start at which there are `limit` of them.
delete from forebay.metrics
where resolution_ms = %(resolution_ms)s
  and starts_at < %(before)s
  and starts_at <= coalesce(
    (
      select starts_at
      from forebay.metrics
      where resolution_ms = %(resolution_ms)s
      order by starts_at
      limit 1 offset %(limit)s::bigint - 1
    ),
    %(before)s
  )
returning 1;
