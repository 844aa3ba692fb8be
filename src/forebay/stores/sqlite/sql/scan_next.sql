-- scan_next: the next live jobs of all queues by seq. Looked through by rowid, because a queue's own order
-- may be what is being rewritten.
select seq, queue, state, ready_at, priority, failures, deadline_at, created_at
from forebay_jobs
where seq > :after
order by seq
limit :limit;
