-- outbox_next: the oldest line of the list.
select id, job_id, event from forebay_dependency_outbox order by id limit 1;
