-- name: candidates: next pending jobs of one class in a queue's main order or in one lane, greatest effective
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

-- name: claim: lease jobs to :worker that `candidates` has found in the same transaction.
-- Guarantees: only pending jobs, so no job is claimed twice.
-- Cost: 5.4 us a job for a query and this update; one statement that also returns the rows takes 6.6.
update forebay_jobs
set state = 'running',
    attempt = attempt + 1,
    worker = :worker,
    swept_from = null,
    lane = null,
    started_at = :now,
    updated_at = :now,
    lease_expires_at = :lease_expires_at
where seq in (select value from json_each(:seqs))
  and state = 'pending';

-- name: park: move a pending job from the main order to a lane.
update forebay_jobs
set lane = :lane,
    updated_at = :now
where seq = :seq
  and state = 'pending';

-- name: lane_counts: number of jobs in each lane.
select queue, lane, count(*)
from forebay_jobs
where state = 'pending' and lane is not null
group by queue, lane
order by queue, lane;

-- name: lane_first: whether jobs wait in the lane of a limit, or in fairness lanes there.
select 1
where exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane)
  or exists (select 1 from forebay_limit_fairness_lanes where queue = :queue and scope = :scope);

-- name: lanes_among: those of these lanes of a queue that have jobs, by one probe for each.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
select value
from json_each(:lanes)
where exists (
  select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = value
)
order by value;

-- name: lanes_claimable: lanes of a queue that have jobs and that a worker may accept, by one probe for each and
-- one more. Fairness and limit lanes sort before all others and are skipped.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
with recursive lanes (lane) as (
  select min(lane) from forebay_jobs where state = 'pending' and queue = :queue and lane > 'l~'
  union all
  select (
    select min(lane) from forebay_jobs where state = 'pending' and queue = :queue and lane > lanes.lane
  )
  from lanes
  where lanes.lane is not null
  limit :limit
)
select lane from lanes where lane is not null;

-- name: lanes_unpark: move the first jobs of a lane back to the main order of their queue.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
update forebay_jobs
set lane = null,
    updated_at = :now
where seq in (
  select seq
  from forebay_jobs
  where state = 'pending' and queue = :queue and lane = :lane
  order by age_capped, rank, seq
  limit :room
);
