-- parents_lock: lock those of these jobs that are live until the transaction ends, and mark them `has_dependants`.
-- Guarantees: a transaction that ends one of them deletes its row. Either it waits for this one and finds the mark, or
-- it was first: then the row is not found here, and a later statement finds the job among final ones. A job that a
-- caller transaction completes (`now_completing`) is not waited for and comes as not locked.
-- Locks: by id, as everywhere. A claim does not touch these rows, so it does not wait.
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
  -- By id: after a wait for the lock the row is a newer version, whose ctid this snapshot cannot see.
  where id = any(array(
    select h.id
    from (select id from locked where not has_dependants order by id) as h
    cross join lateral (select 1 from forebay.jobs where id = h.id for no key update) as j
  ))
)
select id, true from locked
union all
select id, false from busy;
