-- check_keys: unique keys without a live holder, and live jobs that should hold theirs and do not.
select 'key ' || k.key || ' of queue ' || k.queue, 'is held by no live job'
from forebay_job_keys k
where k.kind = 'unique'
  and not exists (
    select 1 from forebay_jobs j where j.id = k.job_id and j.queue = k.queue and j.unique_key = k.key
  )
union all
select 'job ' || j.id, 'does not hold its unique key'
from forebay_jobs j
where j.unique_key is not null
  and (
    coalesce(iif(json_valid(j.options), j.options, null) ->> 'unique_until', 'final') = 'final'
    or j.attempt = 0
  )
  and not exists (
    select 1
    from forebay_job_keys k
    where k.queue = j.queue and k.kind = 'unique' and k.key = j.unique_key and k.job_id = j.id
  );
