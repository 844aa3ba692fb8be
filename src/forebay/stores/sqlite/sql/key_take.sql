-- key_take: give a key to a job. Only an expired holder is replaced; the caller has looked before, in
-- the same transaction.
insert into forebay_keys (queue, kind, key, job_id, until)
values (:queue, :kind, :key, :job_id, :until)
on conflict (queue, kind, key) do update
set job_id = excluded.job_id, until = excluded.until
where forebay_keys.until <= :now;
