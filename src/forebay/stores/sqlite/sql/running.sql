-- running: number of running jobs of all queues, by the counters.
select coalesce(sum(jobs), 0)
from forebay_queue_counts
where state = 'running';
