-- leases_lock: lock a running job; no row if another transaction holds it.
select 1 from forebay.leases where id = %(id)s for update skip locked;
