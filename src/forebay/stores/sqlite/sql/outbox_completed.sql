-- outbox_completed: the oldest lines of the list, as long as they are about jobs that have completed.
select id, job_id, cursor_child_id, cursor_position
from forebay_dependency_outbox
where id < coalesce(
  (select id from forebay_dependency_outbox where event <> 'completed' order by id limit 1), 9223372036854775807
)
order by id
limit :limit;
