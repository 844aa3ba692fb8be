-- name: fairness_key_advance: advance the virtual time of a fairness key whose jobs were claimed.
update forebay_fairness_keys
set virtual_time = virtual_time + :change
where queue = :queue and fairness_key = :fairness_key;

-- name: fairness_key_join: add a fairness key that has pending jobs. It begins one step behind the first.
insert into forebay_fairness_keys (queue, fairness_key, virtual_time)
select :queue, :fairness_key, coalesce((select min(virtual_time) from forebay_fairness_keys where queue = :queue), 0) + :step
where true
on conflict (queue, fairness_key) do nothing;

-- name: fairness_key_remove: remove a fairness key without pending jobs. Index: forebay_jobs_ready (queue, lane,
-- ...).
delete from forebay_fairness_keys
where queue = :queue
  and fairness_key = :fairness_key
  and not exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane);

-- name: fairness_key_resume: add a fairness key that has pending jobs, and may have lanes at limits. With lanes it
-- resumes from their stored virtual time, at most one step from the first
-- (`domain.fairness.resuming_virtual_time`); without lanes it begins one step behind the first.
-- Index: forebay_limit_fairness_lanes_key.
insert into forebay_fairness_keys (queue, fairness_key, virtual_time)
select :queue, :fairness_key,
  case
    when l.resume_virtual_time is null then coalesce(f.virtual_time, 0) + :step
    when f.virtual_time is null then l.resume_virtual_time
    else max(f.virtual_time - :step, min(l.resume_virtual_time, f.virtual_time + :step))
  end
from (select min(virtual_time) as virtual_time from forebay_fairness_keys where queue = :queue) as f
cross join (select max(resume_virtual_time) as resume_virtual_time from forebay_limit_fairness_lanes where queue = :queue and fairness_key = :fairness_key) as l
where true
on conflict (queue, fairness_key) do nothing;

-- name: fairness_keys: fairness keys of a queue with pending jobs, lowest virtual time first.
-- Index: forebay_fairness_keys_virtual_time.
select fairness_key, virtual_time
from forebay_fairness_keys
where queue = :queue
order by virtual_time, fairness_key
limit :limit;

-- name: fairness_keys_exist: whether there are jobs with a fairness key, or were lately.
select exists (select 1 from forebay_fairness_keys);

-- name: fairness_keys_prune: remove fairness keys without pending jobs, of queues that no worker claims from.
delete from forebay_fairness_keys as s
where not exists (
  select 1 from forebay_jobs where state = 'pending' and queue = s.queue and lane = 'fairness:' || s.fairness_key
);

-- name: fairness_lane_put: move pending jobs to the lane of their fairness key.
update forebay_jobs
set lane = :lane
where seq in (select value from json_each(:seqs))
  and state = 'pending';

-- name: limit_fairness_advance: advance the virtual time of a lane whose jobs were unparked.
update forebay_limit_fairness_lanes
set virtual_time = virtual_time + :change
where queue = :queue and scope = :scope and fairness_key = :fairness_key;

-- name: limit_fairness_candidates: next jobs of a lane. Index: forebay_jobs_ready (queue, lane, age_capped, rank).
select seq
from forebay_jobs
where state = 'pending' and queue = :queue and lane = :lane
order by age_capped, rank, seq
limit :limit;

-- name: limit_fairness_join: add the lane of a fairness key at a limit. A new lane begins one step behind the
-- first.
insert into forebay_limit_fairness_lanes (queue, scope, fairness_key, virtual_time, resume_virtual_time)
select :queue, :scope, :fairness_key,
  coalesce((select min(virtual_time) from forebay_limit_fairness_lanes where queue = :queue and scope = :scope), 0) + :step,
  coalesce((select virtual_time from forebay_fairness_keys where queue = :queue and fairness_key = :fairness_key), 0)
where true
on conflict (queue, scope, fairness_key) do nothing;

-- name: limit_fairness_keep_time: store the virtual time of a fairness key without other pending jobs in its lanes.
-- Index: forebay_limit_fairness_lanes_key.
update forebay_limit_fairness_lanes
set resume_virtual_time = (select virtual_time from forebay_fairness_keys where queue = :queue and fairness_key = :fairness_key)
where queue = :queue
  and fairness_key = :fairness_key
  and exists (select 1 from forebay_fairness_keys where queue = :queue and fairness_key = :fairness_key);

-- name: limit_fairness_remove: remove a lane without jobs. Index: forebay_jobs_ready (queue, lane, ...).
delete from forebay_limit_fairness_lanes
where queue = :queue
  and scope = :scope
  and fairness_key = :fairness_key
  and not exists (select 1 from forebay_jobs where state = 'pending' and queue = :queue and lane = :lane);
