-- oldest: 13
-- The audit log by itself: actions of operators, which stay when the job of an action goes. `position`, `previous` and
-- `hash` are written when a line joins the chain of hashes. Numbers are from one series with those of events.
-- An older program would write actions only to the history of jobs, and forget them with the jobs.
create table forebay.audit (
  number bigint primary key default nextval('forebay.events_number_seq'),
  kind text not null,
  at bigint not null,
  job_id text collate "C",
  queue text collate "C",
  attempt integer,
  actor text,
  detail text not null,
  changes text,
  position bigint unique,
  previous text,
  hash text
);

create index audit_job on forebay.audit (job_id) where job_id is not null;
create index audit_unchained on forebay.audit (number) where position is null;

-- Waits for transactions that have written an event, so that the copy misses none.
lock table forebay.events in share row exclusive mode;

insert into forebay.audit (number, kind, at, job_id, queue, attempt, actor, detail, changes)
select number, kind, at, job_id, queue, attempt, actor, detail, changes
from forebay.events
where kind in (
  'cancel', 'forced', 'revived', 'replayed', 'amended', 'deleted', 'queue', 'limit', 'schedule', 'command', 'key', 'alert',
  'ramp'
);

-- What belongs to no job's history is in the audit log alone.
delete from forebay.events
where (job_id is null or kind = 'deleted') and number in (select number from forebay.audit);
