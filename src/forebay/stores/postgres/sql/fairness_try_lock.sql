-- fairness_try_lock: of which queues this transaction has the lock of the shares, until it ends. Nobody is waited for.
select q.queue
from (select distinct queue from forebay.fairness_keys offset 0) as q
where pg_try_advisory_xact_lock(hashtext('forebay.fairness_keys'), hashtext(q.queue));
