-- gated_lock: hold a job that waits behind a gate.
select 1 from forebay.gated where id = %(id)s for update skip locked;
