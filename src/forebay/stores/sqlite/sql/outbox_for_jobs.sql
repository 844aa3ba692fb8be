-- outbox_for_jobs: what the list still has to do about jobs that have completed or are gone, and how far it has come.
select job_id, cursor_child_id, cursor_position
from forebay_dependency_outbox
where job_id in (select value from json_each(:job_ids)) and (event = 'completed' or event = 'deleted');
