-- partition_cancelled: cancelled jobs of a day.
select id
from forebay.finished
where finished_at >= %(start)s and finished_at < %(end)s and state = 'cancelled';
