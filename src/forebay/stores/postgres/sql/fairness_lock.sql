-- fairness_lock: until this transaction ends nobody else takes jobs of the shares of these queues. In the order of their
-- names, so that nobody waits in a circle.
select pg_advisory_xact_lock(hashtext('forebay.fairness_keys'), hashtext(q.name))
from (select name from unnest(%(queues)b::text[]) as n (name) order by name offset 0) as q;
