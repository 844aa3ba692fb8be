-- outbox_add: add jobs to the dependency outbox that have dependants, or successors in a sequence.
-- Index: forebay_dependencies_parent, forebay_sequences_job.
insert into forebay_dependency_outbox (job_id, event)
select value, :event
from json_each(:job_ids)
where exists (select 1 from forebay_dependencies where parent_id = value)
  or exists (select 1 from forebay_sequences where job_id = value)
order by key;
