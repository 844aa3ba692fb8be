-- limits_lock: the limits of these scopes and those of all tasks and keys; until this transaction ends nobody else
-- claims under them. In the order of their names, so that nobody waits in a circle.
select scope, concurrency, rate, per_ms, burst, token_parts, refilled_at
from forebay.limits
where scope = any(%(scopes)b::text[]) or scope like 'task:%%' or scope like 'key:%%'
order by scope
for update;
