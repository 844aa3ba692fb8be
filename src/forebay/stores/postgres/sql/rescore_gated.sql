-- rescore_gated: the same for jobs that wait behind a gate, in the queue where they were looked at.
with locked as materialized (
  select ctid as spot
  from forebay.gated
  where id = any(%(ids)b::text[]) and queue = (%(queues)b::text[])[array_position(%(ids)b::text[], id)]
  for update skip locked
),
gone as (
  delete from forebay.gated where ctid = any(array(select spot from locked)) returning id, gate
),
moved as (
  update forebay.jobs j
  set (rank, capped, rescore_at) = (
    select (%(ranks)b::bigint[])[n.i], (%(age_capped)b::boolean[])[n.i], (%(rescores)b::bigint[])[n.i]
    from (select array_position(%(ids)b::text[], j.id) as i) as n
  )
  where j.id = any(array(select id from gone))
  returning j.queue, j.capped, j.rank, j.seq, j.id, j.expires_at
)
insert into forebay.gated (id, queue, gate, capped, rank, seq, expires_at)
select m.id, m.queue, g.gate, m.capped, m.rank, m.seq, m.expires_at
from moved m
join gone g on g.id = m.id;
