-- delayed_lock: lock a scheduled or retrying job; no row if another transaction holds it.
select 1 from forebay.delayed where id = %(id)s for update skip locked;
