-- uncounted: jobs inserted since the last count, with the greatest seq among them.
-- Index: the rowid, a range at the end of the table.
select queue, state, count(*), max(seq)
from forebay_jobs
where seq > coalesce((select jobs from forebay_queue_counts where queue = '' and state = 'counted'), 0)
group by queue, state;
