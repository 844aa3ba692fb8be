-- position_ahead: count the pending jobs of one class before a rank, up to a limit.
select count(*)
from (
  select 1
  from forebay.ready
  where queue = %(queue)s
    and age_capped = %(age_capped)s
    and (rank, seq) < (%(rank)s, %(seq)s)
  limit %(limit)s
) as a;
