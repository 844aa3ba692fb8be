-- metrics: rows of one resolution in a time span, up to the start at which there are :limit of them.
select starts_at, queue, worker, body
from forebay_metrics
where resolution_ms = :resolution_ms
  and starts_at >= :since
  and starts_at < :before
  and starts_at <= coalesce(
    (
      select starts_at
      from forebay_metrics
      where resolution_ms = :resolution_ms and starts_at >= :since
      order by starts_at
      limit 1 offset :limit - 1
    ),
    :before
  )
order by starts_at, queue, worker;
