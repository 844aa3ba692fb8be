-- limits_lock: lock the limits of these scopes and those of all tasks and keys; no other transaction claims under them
-- before this one ends.
-- Locks: by scope, against deadlocks.
select scope, concurrency, rate, per_ms, burst, token_parts, refilled_at
from forebay.limits
where scope = any(%(scopes)b::text[]) or scope like 'task:%%' or scope like 'key:%%'
order by scope
for update;
