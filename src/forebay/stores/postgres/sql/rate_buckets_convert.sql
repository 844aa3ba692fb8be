-- rate_buckets_convert: a limit by key has another rate: each value keeps its tokens, counted in the new parts. Less
-- than one part is lost, as in `convert_bucket`: rounded up it would be given away.
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
