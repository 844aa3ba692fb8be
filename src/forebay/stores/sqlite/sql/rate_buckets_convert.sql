-- rate_buckets_convert: a limit by key has another rate: what is left for each value stays left. Parts are counted anew, whole
-- tokens and the rest of one by themselves: a product of all parts may be more than 64 bits hold. A quotient of what is
-- owed is cut off towards zero, and one part is owed more.
update forebay_rate_buckets
set token_parts = (
      select min(
        :full,
        b.filled / :old_per_ms * :per_ms + b.filled % :old_per_ms * :per_ms / :old_per_ms
          - (b.filled % :old_per_ms * :per_ms % :old_per_ms < 0)
      )
      from (select min(:old_full, token_parts + max(0, :now - refilled_at) * :old_rate) as filled) as b
    ),
    refilled_at = :now
where scope > :scope || ':' and scope < :scope || '<';
