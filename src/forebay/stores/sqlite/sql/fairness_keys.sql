-- fairness_keys: those of a queue that have jobs waiting, the next first. Relies on index forebay_shares_turn.
select fairness_key, virtual_time
from forebay_fairness_keys
where queue = :queue
order by virtual_time, fairness_key
limit :limit;
