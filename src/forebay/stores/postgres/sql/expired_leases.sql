-- expired_leases: lock leases that have expired, or whose workers are known to be dead; expired ones first, by their
-- expiry.
-- Locks: SKIP LOCKED, so a lease that is just being settled or renewed is passed over.
-- Index: leases_expires, from the low-water mark on. Leases of dead workers are searched among all running jobs, and
-- only if there are dead workers.
with ended as materialized (
  select id, attempt, worker, lease_expires_at, seq
  from forebay.leases
  where lease_expires_at >= %(since)s and lease_expires_at <= %(now)s and not %(only_dead)s::boolean
  order by lease_expires_at, seq
  limit %(limit)s
  for update skip locked
),
orphaned as materialized (
  select id, attempt, worker, lease_expires_at, seq
  from forebay.leases
  where cardinality(%(dead)b::text[]) > 0 and worker = any(%(dead)b::text[])
  order by lease_expires_at, seq
  limit %(limit)s
  for update skip locked
)
select id, attempt, worker
from (
  select id, attempt, worker, lease_expires_at, seq, 1 as part from ended
  union all
  select id, attempt, worker, lease_expires_at, seq, 2 from orphaned where id <> all(array(select id from ended))
) as l
order by part, lease_expires_at, seq
limit %(limit)s;
