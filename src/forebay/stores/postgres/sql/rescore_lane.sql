-- rescore_lane: what `rescore` does, for jobs in side lanes of the queue in which they were read.
with locked as materialized (
  select ctid
  from forebay.side_lanes
  where id = any(%(ids)b::text[]) and queue = (%(queues)b::text[])[array_position(%(ids)b::text[], id)]
  for update skip locked
),
removed as (
  delete from forebay.side_lanes where ctid = any(array(select ctid from locked)) returning id, lane
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
insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
select m.id, m.queue, g.lane, m.age_capped, m.rank, m.seq, m.expires_at
from moved m
join removed g on g.id = m.id;
