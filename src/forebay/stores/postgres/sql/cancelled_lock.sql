-- cancelled_lock: lock those of these jobs that are cancelled; no other transaction revives them before this one ends.
-- Locks: rows of `finished`, by id.
select id, state
from forebay.finished
where id = any(%(ids)b::text[]) and state = 'cancelled'
order by id
for key share;
