-- search_hashes: the seqs of final jobs that have all of these texts in their options, in no order, at most `limit`.
-- Index: finished_search_hashes and dead_search_hashes, whose condition is repeated here.
with wanted as (
  select array(select hashtextextended(mark, 0) from unnest(%(texts)b::text[]) as mark) as marks
)
select seq
from (
  select seq
  from forebay.finished
  where options ~ '"(tags|idempotency_key|correlation_id|parent_id)":'
    and forebay.search_hashes(options) @> (select marks from wanted)
    and 'finished' = any(%(locations)b::text[])
  union all
  select seq
  from forebay.dead
  where options ~ '"(tags|idempotency_key|correlation_id|parent_id)":'
    and forebay.search_hashes(options) @> (select marks from wanted)
    and 'dead' = any(%(locations)b::text[])
) as marked
where seq < coalesce(%(after)s::bigint, 9223372036854775807)
limit %(limit)s;
