-- order_among: which of these places of a queue's order there are.
select r.rank, r.seq
from unnest(%(ranks)b::bigint[], %(seqs)b::bigint[]) as n (rank, seq)
cross join lateral (
  select rank, seq
  from forebay.ready
  where queue = %(queue)s::text
    and capped = false
    and (rank, seq) >= (n.rank, n.seq)
    and (rank, seq) <= (n.rank, n.seq)
  order by rank, seq
) as r;
