-- rescore: new places for jobs that still wait where they were looked at; others get theirs when they wait again.
-- What somebody holds is passed over: a claim takes it away anyway, and who amends it gives it a new place.
-- No join with tables through which jobs flow, for the reason that `due` gives; a place is asked for as in `ready_lock`.
-- `moved` asks for what `gone` has removed, so that the old row is gone before the new one comes.
with p as materialized (
  select *
  from unnest(
    %(queues)b::text[], %(old_age_capped)b::boolean[], %(old_ranks)b::bigint[], %(seqs)b::bigint[]
  ) as p (queue, age_capped, rank, seq)
),
locked as materialized (
  select r.ctid
  from p
  cross join lateral (
    select ctid
    from forebay.ready
    where queue = p.queue
      and age_capped = p.age_capped
      and (rank, seq) >= (p.rank, p.seq)
      and (rank, seq) <= (p.rank, p.seq)
    order by rank, seq
    for update skip locked
  ) as r
),
removed as (
  delete from forebay.ready where ctid = any(array(select ctid from locked)) returning id
),
moved as (
  update forebay.jobs j
  set (rank, age_capped, rescore_at) = (
    select (%(ranks)b::bigint[])[n.i], (%(age_capped)b::boolean[])[n.i], (%(rescores)b::bigint[])[n.i]
    from (select array_position(%(ids)b::text[], j.id) as i) as n
  )
  where j.id = any(array(select id from removed))
  returning j.queue, j.age_capped, j.rank, j.seq, j.id, j.expires_at
)
insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
select queue, age_capped, rank, seq, id, expires_at from moved;
