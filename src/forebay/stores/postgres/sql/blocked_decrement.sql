-- blocked_decrement: fewer edges block these jobs, which this transaction holds. Ids come sorted.
update forebay.blocked b
set unmet = (%(unmet)b::bigint[])[width_bucket(b.id, %(ids)b::text[])]
where id = any(%(ids)b::text[]);
