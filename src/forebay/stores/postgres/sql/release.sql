-- release: jobs that were blocked wait like any others, from now on or from their time on. Ids come sorted.
with moved as (
  update forebay.jobs j
  set (ready_at, run_at, rank, capped, rescore_at, updated_at) = (
    select (%(readies)b::bigint[])[p.i], (%(readies)b::bigint[])[p.i], (%(ranks)b::bigint[])[p.i],
      (%(capped)b::boolean[])[p.i], (%(rescores)b::bigint[])[p.i], %(now)s::bigint
    from (select width_bucket(j.id, %(ids)b::text[]) as i) as p
  )
  where j.id = any(%(ids)b::text[])
  returning j.queue, j.capped, j.rank, j.seq, j.id, j.expires_at, j.run_at
),
later as (
  insert into forebay.due (id, queue, run_at, seq, state, expires_at)
  select id, queue, run_at, seq, 'scheduled', expires_at from moved where run_at > %(now)s
)
insert into forebay.ready (queue, capped, rank, seq, id, expires_at)
select queue, capped, rank, seq, id, expires_at from moved where run_at <= %(now)s;
