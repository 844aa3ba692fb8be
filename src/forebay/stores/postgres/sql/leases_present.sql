-- leases_present: leases of a worker as they are committed, locked or not; given a time, those that are not over then.
select id, attempt
from forebay.leases
where id = any(%(ids)b::text[])
  and worker = %(worker)s
  and id || ':' || attempt = any(%(tokens)b::text[])
  and (%(now)s::bigint is null or least(lease_limit_at, lease_expires_at) > %(now)s::bigint);
