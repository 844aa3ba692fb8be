-- limit_fairness_candidates: next jobs of a lane. Index: forebay_jobs_ready (queue, lane, age_capped, rank).
select seq
from forebay_jobs
where state = 'pending' and queue = :queue and lane = :lane
order by age_capped, rank, seq
limit :limit;
