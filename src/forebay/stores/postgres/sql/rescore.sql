-- rescore: new places for jobs that still wait where they were looked at; others get theirs when they wait again.
-- What somebody holds is passed over: a claim takes it away anyway, and who amends it gives it a new place.
-- `moved` asks for what `gone` has removed, so that the old row is gone before the new one comes.
with p as materialized (
  select *
  from unnest(
    %(ids)b::text[], %(queues)b::text[], %(old_capped)b::boolean[], %(old_ranks)b::bigint[], %(seqs)b::bigint[],
    %(capped)b::boolean[], %(ranks)b::bigint[], %(rescores)b::bigint[]
  ) as p (id, queue, old_capped, old_rank, seq, capped, rank, rescore_at)
),
locked as materialized (
  select r.ctid as spot
  from p
  join forebay.ready r on r.queue = p.queue and r.capped = p.old_capped and r.rank = p.old_rank and r.seq = p.seq
  for update of r skip locked
),
gone as (
  delete from forebay.ready where ctid = any(array(select spot from locked)) returning id
),
moved as (
  update forebay.jobs j
  set rank = p.rank, capped = p.capped, rescore_at = p.rescore_at
  from p
  where j.id = p.id and p.id = any(array(select id from gone))
  returning j.queue, j.capped, j.rank, j.seq, j.id, j.expires_at
)
insert into forebay.ready (queue, capped, rank, seq, id, expires_at)
select queue, capped, rank, seq, id, expires_at from moved;
