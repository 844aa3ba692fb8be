-- partition_counts: count the jobs that ended in a day, by queue and state.
select queue, state, count(*)
from forebay.finished
where finished_at >= %(start)s and finished_at < %(end)s
group by queue, state;
