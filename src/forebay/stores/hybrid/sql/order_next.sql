-- order_next: the next places of a queue's order, for those who keep them in Redis too.
-- Relies on the primary key of ready: one range behind the place that was reached.
select rank, seq
from forebay.ready
where queue = %(queue)s::text
  and capped = false
  and (rank, seq) > (%(after_rank)s::bigint, %(after_seq)s::bigint)
order by rank, seq
limit %(most)s::bigint;
