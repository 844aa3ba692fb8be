-- metrics: rows of one tier in a span of time, up to the start at which there are :limit of them.
select start, queue, worker, body
from forebay_metrics
where tier = :tier
  and start >= :since
  and start < :before
  and start <= coalesce(
    (
      select start
      from forebay_metrics
      where tier = :tier and start >= :since
      order by start
      limit 1 offset :limit - 1
    ),
    :before
  )
order by start, queue, worker;
