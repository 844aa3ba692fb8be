-- outbox_add_if_affected: add outbox entries for jobs that have edges which the event affects, or will have once
-- earlier entries are processed; for deleted jobs also if they are in a sequence.
-- Index: dependencies_parent, dependency_outbox_job and sequences_job; one probe per job, see `delayed_take_due`.
insert into forebay.dependency_outbox (job_id, event)
select n.job_id, %(event)s::text
from unnest(%(job_ids)b::text[]) with ordinality as n (job_id, position)
where (
    select position
    from forebay.dependencies
    where parent_id = n.job_id and state = any(%(states)b::text[])
    order by parent_id, child_id, position
    limit 1
  ) is not null
  or (select id from forebay.dependency_outbox where job_id = n.job_id order by job_id, id limit 1) is not null
  or (%(event)s::text = 'deleted' and exists (select 1 from forebay.sequences where job_id = n.job_id offset 0))
order by n.position
returning id;
