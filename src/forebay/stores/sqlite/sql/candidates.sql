-- candidates: next pending jobs of one class in a queue's main order or in one lane, greatest effective
-- priority first, ties by seq.
-- The first column is the rank relative to :zero.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank), one range from its head.
-- Cost: one class and one queue a call. Both classes in one statement would copy each row once more (0.5 us),
-- and with `queue in (...)` the planner sorts the whole backlog.
select rank - :zero as relative_rank, seq as tie_break, id, seq, queue, task,
  case when length(payload) <= :max_payload then payload else x'' end as payload, priority, options, attempt, failures,
  crashes, created_at, ready_at, run_at, rank, age_capped, deadline_at, expires_at, unique_key, errors
from forebay_jobs
where state = 'pending' and lane is :lane and queue = :queue and age_capped = :age_capped
  and (expires_at is null or expires_at > :now)
order by rank, seq
limit :room;
