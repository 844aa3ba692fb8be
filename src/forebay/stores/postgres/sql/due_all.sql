-- due_all: the same in all queues, from the floor on.
with chosen as materialized (
  select d.id
  from forebay.queues q
  cross join lateral (
    select id, run_at, seq
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
    select ctid
    from forebay.due
    where id = any(array(select id from chosen)) and run_at <= %(now)s
    for update skip locked
  ))
  returning id, state
)
select j.id, j.queue, t.state, j.ready_at, j.priority, j.failures, j.deadline_at, j.run_at
from taken t
join forebay.jobs j on j.id = t.id;
