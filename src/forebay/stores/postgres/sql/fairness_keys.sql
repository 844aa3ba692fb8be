-- fairness_keys: those of a queue that have jobs waiting, the next first. Relies on index shares_turn.
select fairness_key, virtual_time
from forebay.fairness_keys
where queue = %(queue)s and virtual_time is not null
order by virtual_time, fairness_key
limit %(limit)s;
