-- stragglers: jobs that wait in a queue, by seq, to be moved to the dead letters with it.
select seq, id
from forebay_jobs
where queue = :queue
  and (state = 'pending' or state = 'scheduled' or state = 'retrying' or state = 'blocked')
order by seq
limit :limit;
