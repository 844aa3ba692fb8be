-- metrics: rows of one resolution in a time range, up to the start at which there are `limit` of them.
select starts_at, queue, worker, body
from forebay.metrics
where resolution_ms = %(resolution_ms)s
  and starts_at >= %(since)s
  and starts_at < %(before)s
  and starts_at <= coalesce(
    (
      select starts_at
      from forebay.metrics
      where resolution_ms = %(resolution_ms)s and starts_at >= %(since)s
      order by starts_at
      limit 1 offset %(limit)s::bigint - 1
    ),
    %(before)s
  )
order by starts_at, queue, worker;
