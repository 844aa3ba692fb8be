-- amend_blocked: change a blocked job, which this transaction holds. Its place is worked out when it is released.
update forebay.jobs set priority = %(priority)s, options = %(options)s::text, updated_at = %(now)s where id = %(id)s;
