-- ready_lock: hold a pending job by its place in the order; no answer means that it has moved on.
-- A range of one place, in the order of the primary key: where the table was analysed when it was empty, the index of
-- arrivals would seem to be as good, and the whole queue would be read.
select 1
from forebay.ready
where queue = %(queue)s
  and age_capped = %(age_capped)s
  and (rank, seq) >= (%(rank)s, %(seq)s)
  and (rank, seq) <= (%(rank)s, %(seq)s)
order by rank, seq
for update skip locked;
