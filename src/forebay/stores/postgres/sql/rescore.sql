-- rescore: store new ranks of jobs that still wait where they were read; others get theirs when they wait again.
-- Guarantees: `moved` reads what `removed` has deleted, so the old row is gone before the new one comes. A locked row
-- is passed over: a claim takes it away anyway, and an update gives it a new rank.
-- Cost: no join with tables through which jobs flow, see `delayed_take_due`; a rank is probed as in `ready_lock`.
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
