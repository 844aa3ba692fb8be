-- search_window: the seq at which one look through the list ends, however few rows fit.
select seq
from forebay.all_jobs
where place = any(%(places)b::text[])
  and seq < coalesce(%(after)s::bigint, 9223372036854775807)
order by seq desc
limit 1 offset %(rows)s;
