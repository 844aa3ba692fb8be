-- release_shared: jobs that were blocked wait for the turn of their share. Ids come sorted.
with moved as (
  update forebay.jobs j
  set (ready_at, run_at, rank, capped, rescore_at, updated_at) = (
    select (%(readies)b::bigint[])[p.i], (%(readies)b::bigint[])[p.i], (%(ranks)b::bigint[])[p.i],
      (%(capped)b::boolean[])[p.i], (%(rescores)b::bigint[])[p.i], %(now)s::bigint
    from (select width_bucket(j.id, %(ids)b::text[]) as i) as p
  )
  where j.id = any(%(ids)b::text[])
  returning j.queue, j.capped, j.rank, j.seq, j.id, j.expires_at
)
insert into forebay.gated (id, queue, gate, capped, rank, seq, expires_at)
select id, queue, (%(gates)b::text[])[width_bucket(id, %(ids)b::text[])], capped, rank, seq, expires_at from moved;
