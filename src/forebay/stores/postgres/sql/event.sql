-- event: store one event; a job has at most `max_events`, and one row counts the rest. Two at the same instant may both
-- be stored as the last one, which does no harm.
-- Index: events_job.
with stored as (
  insert into forebay.events (kind, occurred_at, job_id, queue, attempt, actor, detail, changes)
  select %(kind)s::text, %(occurred_at)s, %(job_id)s::text, %(queue)s::text, %(attempt)s::bigint, %(actor)s::text,
    %(detail)s::text, %(changes)s::text
  where %(job_id)s::text is null
     or (select count(*) from forebay.events where job_id = %(job_id)s::text) < %(max_events)s
  returning 1
),
more as (
  update forebay.events
  set detail = (detail::bigint + 1)::text,
      occurred_at = %(occurred_at)s
  where job_id = %(job_id)s::text
    and kind = 'events_omitted'
    and not exists (select 1 from stored)
  returning 1
)
insert into forebay.events (kind, occurred_at, job_id, queue, detail)
select 'events_omitted', %(occurred_at)s, %(job_id)s::text, %(queue)s::text, '1'
where not exists (select 1 from stored)
  and not exists (select 1 from more);
