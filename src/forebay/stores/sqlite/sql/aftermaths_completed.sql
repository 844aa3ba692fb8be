-- aftermaths_completed: the oldest lines of the list, as long as they are about jobs that have completed.
select number, parent, after_child, after_number
from forebay_aftermaths
where number < coalesce(
  (select number from forebay_aftermaths where aftermath <> 'completed' order by number limit 1), 9223372036854775807
)
order by number
limit :limit;
