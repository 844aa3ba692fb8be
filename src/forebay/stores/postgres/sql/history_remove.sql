-- history_remove: delete the attempts, progress, events and edges of jobs. The audit log stays.
with a as (
  delete from forebay.failed_attempts where job_id = any(%(ids)b::text[])
),
e as (
  delete from forebay.dependencies where child_id = any(%(ids)b::text[])
),
n as (
  delete from forebay.job_progress where job_id = any(%(ids)b::text[])
)
delete from forebay.events where job_id = any(%(ids)b::text[]);
