-- rate_buckets_prune: remove unused token buckets: not used for twice the time that they take to fill, and
-- full again after jobs that cost more than there was.
delete from forebay_rate_buckets
where exists (
  select 1
  from forebay_limits l
  where l.scope = substr(forebay_rate_buckets.scope, 1, 3 + instr(substr(forebay_rate_buckets.scope, 5), ':'))
    and forebay_rate_buckets.refilled_at <= :now - 2 * coalesce(l.burst, 2 * l.rate) * l.per_ms / l.rate
    and forebay_rate_buckets.token_parts + (:now - forebay_rate_buckets.refilled_at) * l.rate >= coalesce(l.burst, 2 * l.rate) * l.per_ms
);
