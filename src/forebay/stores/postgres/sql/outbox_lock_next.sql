-- outbox_lock_next: lock the oldest outbox entries that no other transaction has locked. The last column says whether
-- the job is in a sequence: it is there before it can end.
-- Guarantees: the events of one job are processed in their order: an entry waits for older ones of its job, which stay
-- until their transaction has processed them.
-- New jobs that wait for one of the busy parents are left out: a caller transaction completes the parent, and they
-- would hide the entries behind them.
-- Index: primary key, from the low-water mark on; primary key of `dependencies`, only if there are busy parents.
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
