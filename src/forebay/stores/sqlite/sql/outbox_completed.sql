-- outbox_completed: oldest outbox entries, as long as they are of completed jobs.
select id, job_id, cursor_child_id, cursor_position
from forebay_dependency_outbox
where id < coalesce(
  (select id from forebay_dependency_outbox where event <> 'completed' order by id limit 1), 9223372036854775807
)
order by id
limit :limit;
