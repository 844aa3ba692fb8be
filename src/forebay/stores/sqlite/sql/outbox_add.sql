-- outbox_add: put jobs on the list if others depend on them, or come after them in a sequence. Relies on the indexes
-- forebay_edges_parent and forebay_sequences_id.
insert into forebay_dependency_outbox (job_id, event)
select value, :event
from json_each(:job_ids)
where exists (select 1 from forebay_dependencies where parent_id = value)
  or exists (select 1 from forebay_sequences where job_id = value)
order by key;
