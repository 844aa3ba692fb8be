-- metrics: rows of one tier in a span of time, up to the start at which there are %(limit)s of them.
select start, queue, worker, body
from forebay.metrics
where tier = %(tier)s
  and start >= %(since)s
  and start < %(before)s
  and start <= coalesce(
    (
      select start
      from forebay.metrics
      where tier = %(tier)s and start >= %(since)s
      order by start
      limit 1 offset %(limit)s::bigint - 1
    ),
    %(before)s
  )
order by start, queue, worker;
