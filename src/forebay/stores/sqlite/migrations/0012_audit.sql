-- oldest: 12
-- The audit log by itself: actions of operators, which stay when the job of an action goes. `position`, `previous` and
-- `hash` are written when a line joins the chain of hashes. Numbers are from one series with those of events.
-- An older program would write actions only to the history of jobs, and forget them with the jobs.
create table forebay_audit (
  number integer primary key,
  kind text not null,
  at integer not null,
  job_id text,
  queue text,
  attempt integer,
  actor text,
  detail text not null,
  changes text,
  position integer unique,
  previous text,
  hash text
) strict;

insert into forebay_audit (number, kind, at, job_id, queue, attempt, actor, detail, changes)
select number, kind, at, job_id, queue, attempt, actor, detail, changes
from forebay_events
where kind in (
  'cancel', 'forced', 'revived', 'replayed', 'amended', 'deleted', 'queue', 'limit', 'schedule', 'command', 'key', 'alert',
  'ramp'
);

-- What belongs to no job's history is in the audit log alone.
delete from forebay_events
where number in (select number from forebay_audit)
  and (job_id is null or kind = 'deleted');
