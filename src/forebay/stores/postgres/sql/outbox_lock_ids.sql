-- outbox_lock_ids: lock outbox entries by id; as `outbox_lock_next` otherwise.
select a.id, a.job_id, a.event, a.cursor_child_id, a.cursor_position,
  (select job_id from forebay.sequences where job_id = a.job_id limit 1) is not null
from unnest(%(ids)b::bigint[]) as w (id)
cross join lateral (
  select id, job_id, event, cursor_child_id, cursor_position
  from forebay.dependency_outbox
  where id = w.id
  for update skip locked
) as a
where not exists (select 1 from forebay.dependency_outbox o where o.job_id = a.job_id and o.id < a.id)
limit %(limit)s;
