-- rate_buckets_prune: delete token buckets that were not used for twice the time of filling up, and that are full again
-- after jobs that cost more than was left.
delete from forebay.rate_buckets b
using forebay.limits l
where b.scope like 'key:%%'
  and l.scope = 'key:' || split_part(b.scope, ':', 2)
  and b.refilled_at <= forebay.now_ms() - 2 * coalesce(l.burst, 2 * l.rate) * l.per_ms / l.rate
  and b.token_parts + (forebay.now_ms() - b.refilled_at) * l.rate >= coalesce(l.burst, 2 * l.rate) * l.per_ms;
