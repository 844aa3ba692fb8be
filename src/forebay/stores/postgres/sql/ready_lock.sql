-- ready_lock: hold a pending job by its place in the order; no answer means that it has moved on.
select 1
from forebay.ready
where queue = %(queue)s and capped = %(capped)s and rank = %(rank)s and seq = %(seq)s
for update;
