-- leases_lock: hold a running job.
select 1 from forebay.leases where id = %(id)s for update skip locked;
