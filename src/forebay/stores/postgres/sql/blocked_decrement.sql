-- blocked_decrement: set `unmet` of jobs whose blocked rows this transaction has locked. Ids are sorted.
update forebay.blocked b
set unmet = (%(unmet)b::bigint[])[width_bucket(b.id, %(ids)b::text[])]
where id = any(%(ids)b::text[]);
