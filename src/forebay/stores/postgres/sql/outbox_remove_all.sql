-- outbox_remove_all: delete processed outbox entries.
delete from forebay.dependency_outbox a
where id = any(%(ids)b::bigint[])
  and not exists (
    select 1 from forebay.dependencies e where e.parent_id = a.job_id and e.state = any(%(states)b::text[])
  );
