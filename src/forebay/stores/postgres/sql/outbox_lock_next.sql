-- outbox_lock_next: hold lines of the list, oldest first, that nobody else has in hand. Relies on the primary key, from the
-- floor on.
-- Guarantees: what has happened to one job is dealt with in the order in which it happened: a line waits for those of
-- its parent that are older, and whoever has these in hand has not removed them yet.
-- Of the new jobs to look at, those that wait for one of the busy parents are left out: a caller's open transaction completes
-- it, and they would hide what is behind them. Relies on the primary key of edges, only where there are busy parents.
-- Last, whether it is in a sequence: a job is there before it can end.
select id, job_id, event, cursor_child_id, cursor_position,
  (select job_id from forebay.sequences where job_id = a.job_id limit 1) is not null
from forebay.dependency_outbox a
where id >= %(since)s
  and not exists (select 1 from forebay.dependency_outbox o where o.job_id = a.job_id and o.id < a.id)
  and (
    cardinality(%(busy)b::text[]) = 0
    or event <> 'check'
    or not exists (
      select 1
      from forebay.dependencies e
      where e.child_id = a.job_id and e.parent_id = any(%(busy)b::text[]) and e.state = 'unchecked'
      offset 0
    )
  )
order by id
limit %(limit)s
for update skip locked;
