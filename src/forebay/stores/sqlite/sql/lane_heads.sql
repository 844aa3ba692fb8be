-- lane_heads: the next jobs of a lane. Relies on index forebay_jobs_ready (queue, gate, capped, rank).
select seq
from forebay_jobs
where state = 'pending' and queue = :queue and gate = :gate
order by capped, rank, seq
limit :limit;
