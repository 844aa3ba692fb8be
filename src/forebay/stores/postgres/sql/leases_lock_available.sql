-- leases_lock_available: lock leases of a worker, without waiting for what somebody else has locked.
select id, attempt
from forebay.leases
where id = any(%(ids)b::text[])
  and worker = %(worker)s
  and id || ':' || attempt = any(%(tokens)b::text[])
order by id
for update skip locked;
