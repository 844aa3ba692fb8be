-- pace: how many jobs of a queue were completed since a time, up to a limit.
select count(*)
from (
  select 1
  from forebay.finished
  where queue = %(queue)s and finished_at > %(since)s and state = 'completed'
  limit %(most)s
) as p;
