-- stragglers: jobs that wait in a queue, by seq, to be moved to the dead letters with it.
select id
from forebay_jobs
where queue = :queue
  and state in ('scheduled', 'blocked', 'pending', 'retrying')
order by seq
limit :limit;
