-- buckets_prune: forget what nobody has used for twice the time that it takes to fill: it is full.
delete from forebay_buckets
where exists (
  select 1
  from forebay_limits l
  where l.scope = substr(forebay_buckets.scope, 1, 3 + instr(substr(forebay_buckets.scope, 5), ':'))
    and forebay_buckets.at <= :now - 2 * coalesce(l.burst, 2 * l.rate) * l.per_ms / l.rate
);
