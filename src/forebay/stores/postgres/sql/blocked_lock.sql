-- blocked_lock: lock a blocked job; no row if another transaction holds it.
select 1 from forebay.blocked where id = %(id)s for update skip locked;
