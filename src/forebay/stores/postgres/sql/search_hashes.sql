-- search_hashes: the seqs of ended jobs that have all of these marks, in no order; at most `most` of them.
-- Relies on finished_marks and dead_marks, whose condition stands here too.
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
