-- partition_history_remove: delete the attempts, progress, events and edges of the jobs of a day. The audit log stays.
with removed as materialized (
  select id from forebay.finished where finished_at >= %(start)s and finished_at < %(end)s
),
a as (
  delete from forebay.failed_attempts h using removed where h.job_id = removed.id
),
e as (
  delete from forebay.dependencies h using removed where h.child_id = removed.id
),
n as (
  delete from forebay.job_progress h using removed where h.job_id = removed.id
)
delete from forebay.events h using removed where h.job_id = removed.id;
