-- fairness_keys: fairness keys of a queue that have jobs waiting, lowest virtual time first.
-- Index: fairness_keys_virtual_time.
select fairness_key, virtual_time
from forebay.fairness_keys
where queue = %(queue)s and virtual_time is not null
order by virtual_time, fairness_key
limit %(limit)s;
