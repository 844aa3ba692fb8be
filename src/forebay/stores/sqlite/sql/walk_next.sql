-- walk_next: the next live jobs of all queues by seq, up to :until. Looked through by rowid, because a queue's
-- own order may be what is being rewritten.
select seq, queue, state, ready_at, priority, failures, deadline_at
from forebay_jobs
where seq > :after
  and seq <= :until
order by seq
limit :limit;
