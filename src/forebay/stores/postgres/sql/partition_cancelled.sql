-- partition_cancelled: the jobs of a day that were cancelled.
select id
from forebay.finished
where finished_at >= %(start)s and finished_at < %(end)s and state = 'cancelled';
