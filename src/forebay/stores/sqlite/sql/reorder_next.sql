-- reorder_next: the next live jobs of all queues by seq. Looked through by rowid, because the queue's own
-- order is what is being rewritten.
select seq, queue, state, ready_at, priority, failures, deadline_at
from forebay_jobs
where seq > :after
order by seq
limit :limit;
