-- fairness_lock: take the fairness locks of these queues until the transaction ends; no other transaction claims by
-- their fairness keys.
-- Locks: in the order of the queue names, against deadlocks.
select pg_advisory_xact_lock(hashtext('forebay.fairness_keys'), hashtext(q.name))
from (select name from unnest(%(queues)b::text[]) as n (name) order by name offset 0) as q;
