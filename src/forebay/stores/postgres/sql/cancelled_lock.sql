-- cancelled_lock: which of these jobs were cancelled; nobody revives them before the transaction ends.
select id, state
from forebay.finished
where id = any(%(ids)b::text[]) and state = 'cancelled'
order by id
for key share;
