-- blocked_lock: hold a blocked job.
select 1 from forebay.blocked where id = %(id)s for update skip locked;
