-- limits: all of them, with what is left of their rates.
select scope, concurrency, rate, per_ms, burst, token_parts, refilled_at
from forebay.limits
order by scope;
