-- oldest: 4
-- Jobs that depend on others. An older program would end jobs without a word to those that wait for them.

-- Set by whoever inserts a job that depends on this one, so that all who end it know without a look at the edges.
alter table forebay.jobs add column has_dependants boolean not null default false;

create table forebay.blocked (
  id text collate "C" primary key,
  queue text collate "C" not null,
  run_at bigint not null,
  seq bigint not null,
  -- How many of its edges are open or held.
  unmet integer not null check (unmet > 0),
  expires_at bigint
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index blocked_order on forebay.blocked (queue, run_at, seq);
create index blocked_expires on forebay.blocked (expires_at) where expires_at is not null;

-- An edge goes with its child; one to a parent that is gone stays as it was.
create table forebay.edges (
  child text collate "C" not null,
  -- Its place among the parents that the child named.
  number integer not null,
  parent text collate "C" not null,
  on_failure text not null check (on_failure in ('cancel', 'fail', 'ignore', 'hold')),
  state text collate "C" not null check (state in ('open', 'met', 'held', 'failed')),
  primary key (child, number)
-- With room for the new version of a row beside the old one: no index has to be told that an edge is met.
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index edges_parent on forebay.edges (parent, child, number);

-- The list: jobs that others depend on and that have ended, or were revived, and what that means is not done yet. With
-- 'check': new jobs whose parents nobody has looked at, because they came in a transaction of their caller's.
create table forebay.aftermaths (
  number bigint generated always as identity primary key,
  parent text collate "C" not null,
  aftermath text not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create index aftermaths_parent on forebay.aftermaths (parent, number);

create or replace view forebay.live_jobs as
  select j.id, j.seq, j.queue, j.task,
    case
      when l.id is not null then 'running'
      when d.id is not null then d.state
      when b.id is not null then 'blocked'
      else 'pending'
    end as state,
    j.payload, j.priority, j.options, coalesce(l.attempt, j.attempt) as attempt, j.failures, j.crashes,
    j.created_at, coalesce(l.updated_at, j.updated_at) as updated_at, j.ready_at, j.run_at, j.rank, j.capped,
    g.gate, coalesce(l.worker, j.worker) as worker, coalesce(l.started_at, j.started_at) as started_at,
    l.until as lease_expires_at, j.deadline_at, j.expires_at, j.unique_key, l.cancel_reason, j.errors
  from forebay.jobs j
  left join forebay.leases l on l.id = j.id
  left join forebay.due d on d.id = j.id
  left join forebay.gated g on g.id = j.id
  left join forebay.blocked b on b.id = j.id;
