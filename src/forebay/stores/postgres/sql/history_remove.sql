-- history_remove: what is remembered about jobs goes with them. The audit log stays.
with a as (
  delete from forebay.attempts where job_id = any(%(ids)b::text[])
),
e as (
  delete from forebay.edges where child = any(%(ids)b::text[])
),
n as (
  delete from forebay.notes where job_id = any(%(ids)b::text[])
)
delete from forebay.events where job_id = any(%(ids)b::text[]);
