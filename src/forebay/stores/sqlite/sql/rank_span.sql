-- rank_span: the lowest and the highest rank of a queue's ordinary class, for an estimate.
-- Relies on index forebay_jobs_ready: one look at each end.
select
  (select rank from forebay_jobs
   where state = 'pending' and lane is null and queue = :queue and age_capped = 0
   order by rank limit 1) as lowest,
  (select rank from forebay_jobs
   where state = 'pending' and lane is null and queue = :queue and age_capped = 0
   order by rank desc limit 1) as highest;
