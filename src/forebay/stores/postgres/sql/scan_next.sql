-- scan_next: the next live jobs of all queues by seq.
-- Index: jobs_seq.
select id, seq, queue, ready_at, priority, failures, deadline_at, rank, age_capped, created_at
from forebay.jobs
where seq > %(after)s
order by seq
limit %(limit)s;
