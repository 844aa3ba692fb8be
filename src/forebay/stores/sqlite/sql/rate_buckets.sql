-- rate_buckets: what is left of rates of keys, by scope of one value; nothing of those that nobody has used.
select b.scope, b.token_parts, b.refilled_at
from json_each(:scopes) s
cross join forebay_rate_buckets b on b.scope = s.value;
