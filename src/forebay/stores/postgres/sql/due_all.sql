-- due_all: the same in all queues, from the floor on. What was found is locked by its place, and not looked for
-- again; no row of this table is ever updated.
with chosen as materialized (
  select d.spot
  from forebay.queues q
  cross join lateral (
    select ctid as spot, run_at, seq
    from forebay.due
    where queue = q.name and run_at >= %(since)s and run_at <= %(now)s
    order by run_at, seq
    limit %(limit)s
  ) as d
  order by d.run_at, d.seq
  limit %(limit)s
),
taken as (
  delete from forebay.due
  where ctid = any(array(
    select d.spot
    from chosen c
    cross join lateral (select ctid as spot from forebay.due where ctid = c.spot for update skip locked) as d
  ))
  returning id, state
)
select j.id, j.queue, t.state, j.ready_at, j.priority, j.failures, j.deadline_at, j.run_at
from taken t
cross join lateral (select * from forebay.jobs where id = t.id offset 0) as j;
