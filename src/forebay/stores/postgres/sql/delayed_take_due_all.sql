-- delayed_take_due_all: the same in all queues, from the low-water mark on. Also answers how far it has read, if there
-- may be more: the number of jobs does not tell, since other transactions may hold rows that it found.
-- Guarantees: a row is locked by its ctid and not searched again, since no row of this table is ever updated.
with chosen as materialized (
  select d.ctid, d.run_at
  from forebay.queues q
  cross join lateral (
    select ctid, run_at, seq
    from forebay.delayed
    where queue = q.name and run_at >= %(since)s and run_at <= %(now)s
    order by run_at, seq
    limit %(limit)s
  ) as d
  -- `delayed_take_due` takes those of a staggered queue.
  where q.settings::json ->> 'promote_per_second' is null
  order by d.run_at, d.seq
  limit %(limit)s
),
taken as (
  delete from forebay.delayed
  where ctid = any(array(
    select d.ctid
    from chosen c
    cross join lateral (select ctid from forebay.delayed where ctid = c.ctid for update skip locked) as d
  ))
  returning id, state
)
select j.id, j.queue, t.state, j.ready_at, j.priority, j.failures, j.deadline_at, c.reached, j.options
from (select case when count(*) = %(limit)s then max(run_at) end as reached from chosen) as c
left join taken t on true
left join lateral (select * from forebay.jobs where id = t.id offset 0) as j on true;
