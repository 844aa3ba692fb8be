-- rate_buckets_convert: convert the token buckets of a limit by key to another rate; what is left for each
-- value stays left.
-- Whole tokens and the rest of one are converted separately: a product of all parts may exceed 64 bits. A
-- negative quotient is cut off towards zero, so one part more is owed.
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
