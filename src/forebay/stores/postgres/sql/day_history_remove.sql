-- day_history_remove: what is remembered about the jobs of a day goes with them.
with gone as materialized (
  select id from forebay.finished where finished_at >= %(start)s and finished_at < %(end)s
),
a as (
  delete from forebay.attempts h using gone where h.job_id = gone.id
),
e as (
  delete from forebay.edges h using gone where h.child = gone.id
),
-- Nobody can revive these any more for what is held because of them.
l as (
  insert into forebay.aftermaths (parent, aftermath)
  select f.id, 'deleted'
  from forebay.finished f
  where f.finished_at >= %(start)s
    and f.finished_at < %(end)s
    and f.state = 'cancelled'
    and exists (select 1 from forebay.edges where parent = f.id and state = any('{open,held}'))
),
n as (
  delete from forebay.notes h using gone where h.job_id = gone.id
)
delete from forebay.events h using gone where h.job_id = gone.id and h.kind <> 'deleted';
