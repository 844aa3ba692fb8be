-- rank_span: lowest and highest rank of a queue's jobs that are not age-capped, for an estimate.
-- Index: forebay_jobs_ready, one probe at each end.
select
  (select rank from forebay_jobs
   where state = 'pending' and lane is null and queue = :queue and age_capped = 0
   order by rank limit 1) as lowest,
  (select rank from forebay_jobs
   where state = 'pending' and lane is null and queue = :queue and age_capped = 0
   order by rank desc limit 1) as highest;
