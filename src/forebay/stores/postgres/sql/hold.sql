-- hold: what `heads` has locked and is not for this worker goes behind the gate of its task.
with gone as (
  delete from forebay.ready where ctid = any(%(spots)b::text[]::tid[])
),
marked as (
  update forebay.jobs set updated_at = %(now)s where id = any(%(ids)b::text[])
)
insert into forebay.gated (id, queue, gate, capped, rank, seq, expires_at)
select h.id, %(queue)s::text, h.gate, h.capped, h.rank, h.seq, h.expires_at
from unnest(
  %(ids)b::text[], %(gates)b::text[], %(capped)b::boolean[], %(ranks)b::bigint[], %(seqs)b::bigint[],
  %(expires)b::bigint[]
) as h (id, gate, capped, rank, seq, expires_at);
