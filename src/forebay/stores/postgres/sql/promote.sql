-- promote: what `due` has taken waits in its queue's order from now on.
with moved as (
  update forebay.jobs j
  set rank = p.rank,
      capped = p.capped,
      rescore_at = p.rescore_at,
      updated_at = %(now)s
  from unnest(
    %(ids)b::text[], %(ranks)b::bigint[], %(capped)b::boolean[], %(rescores)b::bigint[]
  ) as p (id, rank, capped, rescore_at)
  where j.id = p.id
  returning j.queue, j.capped, j.rank, j.seq, j.id, j.expires_at
)
insert into forebay.ready (queue, capped, rank, seq, id, expires_at)
select queue, capped, rank, seq, id, expires_at from moved;
