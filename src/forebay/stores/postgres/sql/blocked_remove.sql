-- blocked_remove: delete blocked rows that this transaction has locked.
delete from forebay.blocked where id = any(%(ids)b::text[]);
