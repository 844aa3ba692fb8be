-- day_history_remove: what is remembered about the jobs of a day goes with them. The audit log stays.
with gone as materialized (
  select id from forebay.finished where finished_at >= %(start)s and finished_at < %(end)s
),
a as (
  delete from forebay.attempts h using gone where h.job_id = gone.id
),
e as (
  delete from forebay.edges h using gone where h.child = gone.id
),
n as (
  delete from forebay.notes h using gone where h.job_id = gone.id
)
delete from forebay.events h using gone where h.job_id = gone.id;
