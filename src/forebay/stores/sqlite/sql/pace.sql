-- pace: how many jobs of a queue were completed since :since, up to :most.
-- Relies on index forebay_finished_queue (queue, finished_at).
select count(*)
from (
  select 1
  from forebay_finished
  where queue = :queue
    and finished_at > :since
    and state = 'completed'
  limit :most
);
