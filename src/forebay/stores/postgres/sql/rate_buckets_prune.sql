-- rate_buckets_prune: forget what nobody has used for twice the time that it takes to fill, and what is full again after jobs
-- that cost more than there was.
delete from forebay.rate_buckets b
using forebay.limits l
where b.scope like 'key:%%'
  and l.scope = 'key:' || split_part(b.scope, ':', 2)
  and b.refilled_at <= forebay.now_ms() - 2 * coalesce(l.burst, 2 * l.rate) * l.per_ms / l.rate
  and b.token_parts + (forebay.now_ms() - b.refilled_at) * l.rate >= coalesce(l.burst, 2 * l.rate) * l.per_ms;
