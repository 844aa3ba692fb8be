-- dead_lock: lock those of these jobs that are dead; no other transaction revives them before this one ends.
-- Locks: rows of `dead`, by id.
select id, 'dead' as state from forebay.dead where id = any(%(ids)b::text[]) order by id for key share;
