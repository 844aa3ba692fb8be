-- fairness_keys: fairness keys of a queue with pending jobs, lowest virtual time first.
-- Index: forebay_fairness_keys_virtual_time.
select fairness_key, virtual_time
from forebay_fairness_keys
where queue = :queue
order by virtual_time, fairness_key
limit :limit;
