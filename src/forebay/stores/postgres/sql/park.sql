-- park: what `heads` has locked and is not for this worker, or over a limit, goes behind a gate.
-- Not marked are jobs of a caller who holds limits, or the lock of shares: others wait for these while they hold rows of
-- jobs that have ended, and an insert may wait for one of those while it holds the row of a job that is to be marked.
with removed as (
  delete from forebay.ready where ctid = any(%(ctids)b::text[]::tid[])
),
marked as (
  update forebay.jobs set updated_at = %(now)s where id = any(%(touched_ids)b::text[])
)
insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
select h.id, %(queue)s::text, h.lane, h.age_capped, h.rank, h.seq, h.expires_at
from unnest(
  %(ids)b::text[], %(lanes)b::text[], %(age_capped)b::boolean[], %(ranks)b::bigint[], %(seqs)b::bigint[],
  %(expires_at)b::bigint[]
) as h (id, lane, age_capped, rank, seq, expires_at);
