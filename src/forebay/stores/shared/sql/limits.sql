-- name: limits: all limits with their token buckets.
select scope, concurrency, rate, per_ms, burst, token_parts, refilled_at
from forebay.limits
order by scope;

-- name: limit_fairness_lanes: fairness keys with jobs parked at a limit, lowest virtual time first.
-- Index: limit_fairness_lanes_virtual_time.
select fairness_key, virtual_time
from forebay.limit_fairness_lanes
where queue = :queue and scope = :scope
order by virtual_time, fairness_key
limit :limit;

-- name: limit_remove: delete a limit and return it.
delete from forebay.limits where scope = :scope
returning scope, concurrency, rate, per_ms, burst, token_parts, refilled_at;

-- name: limit_save: store a limit.
insert into forebay.limits (scope, concurrency, rate, per_ms, burst, token_parts, refilled_at)
values (:scope, :concurrency, :rate, :per_ms, :burst, :token_parts, :refilled_at)
on conflict (scope) do update
set concurrency = excluded.concurrency,
    rate = excluded.rate,
    per_ms = excluded.per_ms,
    burst = excluded.burst,
    token_parts = excluded.token_parts,
    refilled_at = excluded.refilled_at;

-- name: limit_spend: store the token bucket of a limit.
update forebay.limits
set token_parts = :token_parts, refilled_at = :refilled_at
where scope = :scope;

-- name: rate_bucket: token bucket of the rate at which a queue accepts jobs.
select token_parts, refilled_at
from forebay.rate_buckets
where scope = :scope;

-- name: rate_buckets_remove: delete the token buckets of a limit by key: a missing bucket is full.
-- Index: primary key, one prefix range.
delete from forebay.rate_buckets
where scope > :scope || ':' and scope < :scope || '<';
