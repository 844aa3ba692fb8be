-- outbox_for_jobs: outbox entries of completed or removed jobs, with their cursors.
select job_id, cursor_child_id, cursor_position
from forebay_dependency_outbox
where job_id in (select value from json_each(:job_ids)) and (event = 'completed' or event = 'deleted');
