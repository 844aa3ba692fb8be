-- due: take scheduled and retrying jobs of a queue whose time has come out of their table, earliest first.
-- Relies on index due_order (queue, run_at, seq), from a time on before which nothing was left: below it there
-- may be any number of dead rows. Whoever commits late is found by `due_all`.
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
select j.id, j.queue, t.state, j.ready_at, j.priority, j.failures, j.deadline_at
from taken t
join forebay.jobs j on j.id = t.id;
