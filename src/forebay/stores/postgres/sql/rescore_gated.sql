-- rescore_gated: the same for jobs that wait behind a gate.
with p as materialized (
  select *
  from unnest(
    %(ids)b::text[], %(capped)b::boolean[], %(ranks)b::bigint[], %(rescores)b::bigint[]
  ) as p (id, capped, rank, rescore_at)
),
locked as materialized (
  select g.ctid as spot
  from p
  join forebay.gated g on g.id = p.id
  for update of g skip locked
),
gone as (
  delete from forebay.gated where ctid = any(array(select spot from locked)) returning id, gate
),
moved as (
  update forebay.jobs j
  set rank = p.rank, capped = p.capped, rescore_at = p.rescore_at
  from p
  where j.id = p.id and p.id = any(array(select id from gone))
  returning j.queue, j.capped, j.rank, j.seq, j.id, j.expires_at
)
insert into forebay.gated (id, queue, gate, capped, rank, seq, expires_at)
select m.id, m.queue, g.gate, m.capped, m.rank, m.seq, m.expires_at
from moved m
join gone g on g.id = m.id;
