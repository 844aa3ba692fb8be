-- rate_bucket: what is left of a rate at which a queue takes jobs.
select token_parts, refilled_at
from forebay.rate_buckets
where scope = %(scope)s;
