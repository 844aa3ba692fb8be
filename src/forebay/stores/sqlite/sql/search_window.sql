-- search_window: the seq at which one look through the list ends, however few rows fit.
select seq
from forebay_all_jobs
where place in (select value from json_each(:places))
  and (:after is null or seq < :after)
order by seq desc
limit 1 offset :rows;
