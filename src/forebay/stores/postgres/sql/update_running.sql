-- update_running: store new metadata of a job whose lease this transaction has locked.
with marked as (
  update forebay.leases set updated_at = %(now)s where id = %(id)s
)
update forebay.jobs set options = %(options)s::text, updated_at = %(now)s where id = %(id)s;
