-- update_blocked: change a blocked job, which this transaction holds. Its place is worked out when it is released.
-- Its narrow row is changed in place, so that whoever waits for it to release the job finds it, and its new queue there.
with there as (
  update forebay.blocked set queue = %(queue)s where id = %(id)s and queue <> %(queue)s
)
update forebay.jobs
set queue = %(queue)s, priority = %(priority)s, options = %(options)s::text, updated_at = %(now)s
where id = %(id)s;
