-- key_take: give a key to a job. Only an expired holder is replaced; the caller has checked the key before,
-- in the same transaction.
insert into forebay_job_keys (queue, kind, key, job_id, held_until)
values (:queue, :kind, :key, :job_id, :held_until)
on conflict (queue, kind, key) do update
set job_id = excluded.job_id, held_until = excluded.held_until
where forebay_job_keys.held_until <= :now;
