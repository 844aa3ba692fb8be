-- prunable_dead: dead jobs of a queue past their retention, oldest first.
-- Index: forebay_dead_queue (queue, finished_at).
select seq, id, queue, task, state, created_at, finished_at, started_at, attempt, failures, reason,
  substr(result, 1, 800) as excerpt
from forebay_dead
where queue = :queue
  and finished_at <= :before
order by finished_at, seq
limit :limit;
