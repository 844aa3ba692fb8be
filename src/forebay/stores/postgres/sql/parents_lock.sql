-- parents_lock: which of these jobs are live, held until the transaction ends, and marked as jobs that others depend on.
-- Guarantees: whoever ends one of them deletes its row, and so waits for us and finds the mark in the row that it
-- deletes; or was first, and then the row is not found here, and a later statement finds the job among those that ended.
-- In the order of ids, as everybody who locks several. A claim does not touch these rows, so it does not wait.
-- One that a caller's open transaction completes (`now_holding`) is not waited for: it is answered as one that is not held.
with busy as materialized (
  select n.id
  from (
    select w.id, hashtextextended('forebay.jobs ' || w.id, 0) as lock_id from unnest(%(ids)b::text[]) as w (id) offset 0
  ) as n
  where not case when pg_try_advisory_lock_shared(n.lock_id) then pg_advisory_unlock_shared(n.lock_id) else false end
),
locked as materialized (
  select id, has_dependants
  from forebay.jobs
  where id = any(array(select unnest(%(ids)b::text[]) except select id from busy))
  order by id
  for key share
),
marked as (
  update forebay.jobs
  set has_dependants = true
  -- By id: who waits for the lock gets a newer row, whose place this statement cannot see.
  where id = any(array(
    select h.id
    from (select id from locked where not has_dependants order by id) as h
    cross join lateral (select 1 from forebay.jobs where id = h.id for no key update) as j
  ))
)
select id, true from locked
union all
select id, false from busy;
