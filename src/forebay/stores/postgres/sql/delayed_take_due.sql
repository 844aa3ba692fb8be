-- delayed_take_due: take the scheduled and retrying jobs of a queue whose time has come out of their table, earliest
-- first.
-- Index: delayed_order (queue, run_at, seq), from a time on below which nothing was left: there may be any number of
-- dead tuples. `delayed_take_due_all` finds jobs that are committed late.
-- Cost: each job is probed by itself (`offset 0`). A table that was analysed when it was empty has one row for the
-- planner, however many dead tuples it has. A join might then read the whole index.
-- In a staggered queue a batch becomes pending and then none for a while. The transaction that moves the time of the
-- promote task takes the batch.
with rates as materialized (
  select q.queue, r.rate, greatest(1, r.rate / 10) as jobs,
    current_setting('forebay_tx.now')::bigint + (1000 * greatest(1, r.rate / 10) + r.rate - 1) / r.rate as until
  from (select %(queue)s::text as queue) as q
  left join lateral (
    select (settings::json ->> 'promote_per_second')::bigint as rate from forebay.queues where name = q.queue
  ) as r on true
),
due_tick as (
  insert into forebay.maintenance as d (name, due_at)
  select 'promote ' || p.queue, p.until
  from rates p
  where p.rate is not null
    -- On conflict the row is locked, whatever the condition below says; most claims come between two ticks.
    and not exists (
      select 1
      from forebay.maintenance
      where name = 'promote ' || p.queue and due_at > current_setting('forebay_tx.now')::bigint and due_at <= p.until
    )
    and exists (
      select 1
      from forebay.delayed
      where queue = %(queue)s and run_at >= %(since)s and run_at <= current_setting('forebay_tx.now')::bigint
    )
  on conflict (name) do update
  set due_at = excluded.due_at
  where d.due_at <= current_setting('forebay_tx.now')::bigint or d.due_at > excluded.due_at
  returning 1
),
taken as (
  delete from forebay.delayed
  where ctid = any(array(
    select ctid
    from forebay.delayed
    where queue = %(queue)s
      and run_at >= %(since)s
      and run_at <= current_setting('forebay_tx.now')::bigint
    order by run_at, seq
    limit (
      select case
        when p.rate is null then %(limit)s
        when exists (select 1 from due_tick) then least(p.jobs, %(limit)s)
        else 0
      end
      from rates p
    )
    for update skip locked
  ))
  returning id, state
)
select j.id, j.queue, t.state, j.ready_at, j.priority, j.failures, j.deadline_at, j.options
from taken t
cross join lateral (select * from forebay.jobs where id = t.id offset 0) as j;
