-- rate_buckets_convert: a limit by key has another rate: what is left for each value stays left. Parts are counted anew, and what
-- is less than one of them is lost, as `changed_from` has it: rounded up it would be given away.
update forebay.rate_buckets
set token_parts = least(
      %(full)s::numeric,
      floor(
        least(%(old_full)s::numeric, token_parts + greatest(0, %(now)s - refilled_at)::numeric * %(old_rate)s) * %(per_ms)s
          / %(old_per_ms)s
      )
    )::bigint,
    refilled_at = %(now)s
where scope > %(scope)s || ':' and scope < %(scope)s || '<';
