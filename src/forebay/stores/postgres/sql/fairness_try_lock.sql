-- fairness_try_lock: queues whose fairness lock this transaction got, until it ends. It waits for no lock.
select q.queue
from (select distinct queue from forebay.fairness_keys offset 0) as q
where pg_try_advisory_xact_lock(hashtext('forebay.fairness_keys'), hashtext(q.queue));
