-- promote_fair: put due jobs into the lanes of their fairness keys.
with moved as (
  update forebay.jobs j
  set (rank, age_capped, rescore_at, updated_at) = (
    select (%(ranks)b::bigint[])[p.i], (%(age_capped)b::boolean[])[p.i], (%(rescores)b::bigint[])[p.i],
      greatest(%(now)s::bigint, j.run_at + 1) -- `promoted_at` in domain/settlement.py says why
    from (select array_position(%(ids)b::text[], j.id) as i) as p
  )
  where j.id = any(%(ids)b::text[])
  returning j.queue, j.age_capped, j.rank, j.seq, j.id, j.expires_at
)
insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
select id, queue, (%(lanes)b::text[])[array_position(%(ids)b::text[], id)], age_capped, rank, seq, expires_at from moved;
