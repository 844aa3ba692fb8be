-- due_lock: hold a scheduled or retrying job.
select 1 from forebay.due where id = %(id)s for update skip locked;
