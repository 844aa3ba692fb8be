-- rate_bucket: token bucket of the rate at which a queue accepts jobs.
select token_parts, refilled_at
from forebay.rate_buckets
where scope = %(scope)s;
