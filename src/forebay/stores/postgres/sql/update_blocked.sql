-- update_blocked: update a blocked job whose row this transaction has locked. Its rank is computed when it is released.
-- Guarantees: the narrow row is updated in place, so that a transaction that waits to release the job finds it with its
-- new queue.
with there as (
  update forebay.blocked set queue = %(queue)s where id = %(id)s and queue <> %(queue)s
)
update forebay.jobs
set queue = %(queue)s, priority = %(priority)s, options = %(options)s::text, updated_at = %(now)s
where id = %(id)s;
