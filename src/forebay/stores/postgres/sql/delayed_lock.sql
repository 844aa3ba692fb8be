-- delayed_lock: hold a scheduled or retrying job.
select 1 from forebay.delayed where id = %(id)s for update skip locked;
