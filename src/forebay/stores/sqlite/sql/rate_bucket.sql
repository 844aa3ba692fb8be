-- rate_bucket: token bucket of a rate of new jobs.
select token_parts, refilled_at
from forebay_rate_buckets
where scope = :scope;
