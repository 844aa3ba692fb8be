-- park: move candidates that this worker cannot run, or whose limit is full, to side lanes.
-- `touched_ids` leaves out the jobs of a caller that holds limits or a fairness lock. Other transactions wait for these
-- locks while they hold rows of ended jobs; an insert may wait for such a row while it holds the row of a job to be
-- touched.
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
