-- closed_due: gates of a queue that it is time to look behind.
select scope
from forebay_closed
where queue = :queue and look_at <= :now
order by look_at
limit :limit;
