-- limits: all limits with their token buckets.
select scope, concurrency, rate, per_ms, burst, token_parts, refilled_at
from forebay.limits
order by scope;
