-- rate_buckets: token buckets of keys, by scope of one value; no row for an unused one.
select b.scope, b.token_parts, b.refilled_at
from json_each(:scopes) s
cross join forebay_rate_buckets b on b.scope = s.value;
