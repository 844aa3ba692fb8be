-- leases_lock_available: lock leases of a worker.
-- Locks: by id, SKIP LOCKED.
select id, attempt
from forebay.leases
where id = any(%(ids)b::text[])
  and worker = %(worker)s
  and id || ':' || attempt = any(%(tokens)b::text[])
order by id
for update skip locked;
