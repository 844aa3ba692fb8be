-- search_window: the id at which one look through the list ends, however few rows fit.
select id
from forebay_all_jobs
where place in (select value from json_each(:places))
  and (:after is null or id < :after)
order by id desc
limit 1 offset :rows;
