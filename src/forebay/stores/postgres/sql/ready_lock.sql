-- ready_lock: lock a pending job by its rank; no row means that it has moved or another transaction holds it.
-- Cost: a range of one rank in the order of the primary key. If the table was analysed when it was empty, the index of
-- arrivals would seem as good, and the whole queue would be read.
select 1
from forebay.ready
where queue = %(queue)s
  and age_capped = %(age_capped)s
  and (rank, seq) >= (%(rank)s, %(seq)s)
  and (rank, seq) <= (%(rank)s, %(seq)s)
order by rank, seq
for update skip locked;
