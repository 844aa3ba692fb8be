-- blocked_remove: jobs that this transaction holds are blocked no more.
delete from forebay.blocked where id = any(%(ids)b::text[]);
