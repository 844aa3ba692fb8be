-- gate_first: whether anybody waits behind a gate.
select seq
from forebay_jobs
where state = 'pending' and queue = :queue and gate = :gate
limit 1;
