-- leases_present: committed leases of a worker, locked or not; with a time only those that have not expired then.
select id, attempt
from forebay.leases
where id = any(%(ids)b::text[])
  and worker = %(worker)s
  and id || ':' || attempt = any(%(tokens)b::text[])
  and (%(now)s::bigint is null or least(lease_limit_at, lease_expires_at) > %(now)s::bigint);
