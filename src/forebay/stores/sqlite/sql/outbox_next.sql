-- outbox_next: oldest outbox entry.
select id, job_id, event from forebay_dependency_outbox order by id limit 1;
