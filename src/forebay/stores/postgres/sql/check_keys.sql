-- check_keys: unique keys that no live job holds, and live jobs that lack their unique key.
select 'key ' || k.key || ' of queue ' || k.queue, 'is held by no live job'
from forebay.job_keys k
where k.kind = 'unique'
  and not exists (
    select 1 from forebay.jobs j where j.id = k.job_id and j.queue = k.queue and j.unique_key = k.key
  )
union all
select 'job ' || j.id, 'does not hold its unique key'
from forebay.live_jobs j
where j.unique_key is not null
  and (
    -- PostgreSQL reads no JSON with a zero character; see `search`.
    coalesce(forebay.try_json(replace(j.options, '\u0000', '\u2400')) ->> 'unique_until', 'final') = 'final'
    or j.attempt = 0
  )
  and not exists (
    select 1
    from forebay.job_keys k
    where k.queue = j.queue and k.kind = 'unique' and k.key = j.unique_key and k.job_id = j.id
  );
