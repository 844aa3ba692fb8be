-- renew: move lease ends forward, never back and never past their limit.
-- Guarantees: only while the lease is held (attempt, worker).
-- Locks: by id, SKIP LOCKED, since one job in the transaction of its task would hold up all the others.
with locked as materialized (
  select id
  from forebay.leases
  where id = any(%(ids)b::text[])
    and worker = %(worker)s
    and id || ':' || attempt = any(%(tokens)b::text[])
  order by id
  for update skip locked
)
update forebay.leases l
set lease_expires_at = greatest(
  l.lease_expires_at,
  least(
    %(now)s + coalesce(
      %(lease_ms)s::bigint,
      l.lease_ms,
      (select (q.settings::json ->> 'lease_ms')::bigint from forebay.queues q where q.name = l.queue)
    ),
    l.lease_limit_at
  )
)
where l.id = any(array(select id from locked))
  and l.lease_limit_at > %(now)s
returning l.id, l.attempt;
