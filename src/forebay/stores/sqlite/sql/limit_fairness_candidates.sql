-- limit_fairness_candidates: the next jobs of a lane. Relies on index forebay_jobs_ready (queue, gate, capped, rank).
select seq
from forebay_jobs
where state = 'pending' and queue = :queue and lane = :lane
order by age_capped, rank, seq
limit :limit;
