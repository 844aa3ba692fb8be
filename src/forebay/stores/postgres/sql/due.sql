-- due: take scheduled and retrying jobs of a queue whose time has come out of their table, earliest first.
-- Relies on index due_order (queue, run_at, seq), from a time on before which nothing was left: below it there
-- may be any number of dead rows. Whoever commits late is found by `due_all`.
-- Each job is looked up by itself (`offset 0`): to the planner a table that was analysed when it was empty has one row,
-- however many dead ones there are, and a join may just as well read all of its index.
with taken as (
  delete from forebay.due
  where ctid = any(array(
    select ctid
    from forebay.due
    where queue = %(queue)s
      and run_at >= %(since)s
      and run_at <= current_setting('forebay_tx.now')::bigint
    order by run_at, seq
    limit %(limit)s
    for update skip locked
  ))
  returning id, state
)
select j.id, j.queue, t.state, j.ready_at, j.priority, j.failures, j.deadline_at, j.options
from taken t
cross join lateral (select * from forebay.jobs where id = t.id offset 0) as j;
