-- overdue: lock leases that have ended, or whose workers are known to be dead, soonest end first; those that have
-- ended come first. What somebody is just settling or renewing is passed over.
-- Relies on index leases_until, from the floor on; the dead are looked for among all running jobs, and only when
-- there are some.
with ended as materialized (
  select id, attempt, worker, until, seq
  from forebay.leases
  where until >= %(since)s and until <= %(now)s and not %(only_dead)s::boolean
  order by until, seq
  limit %(limit)s
  for update skip locked
),
orphaned as materialized (
  select id, attempt, worker, until, seq
  from forebay.leases
  where cardinality(%(dead)b::text[]) > 0 and worker = any(%(dead)b::text[])
  order by until, seq
  limit %(limit)s
  for update skip locked
)
select id, attempt, worker
from (
  select id, attempt, worker, until, seq, 1 as part from ended
  union all
  select id, attempt, worker, until, seq, 2 from orphaned where id <> all(array(select id from ended))
) as l
order by part, until, seq
limit %(limit)s;
