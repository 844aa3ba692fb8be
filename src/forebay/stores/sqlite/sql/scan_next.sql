-- scan_next: next live jobs of all queues by seq. By rowid, because the scan may be rewriting a queue's main
-- order.
select seq, queue, state, ready_at, priority, failures, deadline_at, created_at
from forebay_jobs
where seq > :after
order by seq
limit :limit;
