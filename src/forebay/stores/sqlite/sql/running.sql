-- running: how many jobs of all queues run, by the counters.
select coalesce(sum(jobs), 0)
from forebay_queue_counts
where state = 'running';
