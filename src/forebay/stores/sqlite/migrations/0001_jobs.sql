-- oldest: 1
-- The first schema. `forebay_jobs` holds live jobs only; final ones move to `forebay_finished` (completed,
-- cancelled) or `forebay_dead` in the transaction that ends them, so that history never slows a claim.
-- Tables carry a prefix because they may live in the user's own database file.

create table forebay_queues (
  name text primary key,
  state text not null check (state in ('active', 'paused', 'draining', 'dropped')),
  settings text not null,
  rank_version integer not null,
  -- While a change of scoring is carried out: the last seq that has its new rank.
  reordered_to integer,
  created_at integer not null,
  updated_at integer not null
) strict, without rowid;

create table forebay_jobs (
  -- Grows with every job that is accepted and is never used twice, so it names a job in all three tables.
  seq integer primary key,
  id text not null,
  -- 1 if the id was brought by the caller and has to be looked up; a generated id contains its seq.
  by_id integer not null default 0,
  queue text not null,
  task text not null,
  -- `or` and not `in`, here and in the indexes: SQLite builds a list for `in` at every row (2 us an insert).
  state text not null check (
    state = 'pending' or state = 'running' or state = 'scheduled' or state = 'retrying' or state = 'blocked'
  ),
  priority integer not null,
  -- Settings of the job that differ from the defaults, as JSON; null for most jobs.
  options text,
  attempt integer not null default 0,
  failures integer not null default 0,
  crashes integer not null default 0,
  created_at integer not null,
  updated_at integer not null,
  ready_at integer not null,
  run_at integer not null,
  rank integer not null,
  capped integer not null default 0,
  rescore_at integer,
  -- Behind a gate a pending job is out of the claim's order and in that of its gate.
  gate text,
  -- The holder of the newest attempt; it stays after the attempt has ended, so that a repeated
  -- settlement is known for what it is.
  worker text,
  swept_from text,
  started_at integer,
  lease_expires_at integer,
  deadline_at integer,
  expires_at integer,
  unique_key text,
  cancel_reason text,
  errors text,
  -- Last, so that whoever looks at another column need not step over a large one.
  payload blob not null
) strict;

create unique index forebay_jobs_id on forebay_jobs (id) where by_id = 1;

-- claim, peek: the order of a queue (gate null) and of each gate, by class. seq, the rowid, is the last
-- column of every index.
create index forebay_jobs_ready on forebay_jobs (queue, gate, capped, rank)
  where state = 'pending';
-- promote, and how long a worker may sleep.
create index forebay_jobs_due on forebay_jobs (queue, run_at)
  where state = 'scheduled' or state = 'retrying';
-- sweep; also small enough to look through for the leases of one worker.
create index forebay_jobs_lease on forebay_jobs (lease_expires_at)
  where state = 'running';
create index forebay_jobs_rescore on forebay_jobs (rescore_at)
  where rescore_at is not null;
create index forebay_jobs_expires on forebay_jobs (expires_at)
  where expires_at is not null and state <> 'running';
create index forebay_jobs_cancel on forebay_jobs (worker)
  where cancel_reason is not null and state = 'running';

create table forebay_finished (
  seq integer primary key,
  id text not null,
  by_id integer not null,
  queue text not null,
  task text not null,
  state text not null check (state = 'completed' or state = 'cancelled'),
  priority integer not null,
  options text,
  attempt integer not null,
  failures integer not null,
  crashes integer not null,
  created_at integer not null,
  updated_at integer not null,
  ready_at integer not null,
  run_at integer not null,
  rank integer not null,
  capped integer not null,
  worker text,
  started_at integer,
  deadline_at integer,
  expires_at integer,
  unique_key text,
  cancel_reason text,
  errors text,
  finished_at integer not null,
  reason text,
  payload blob not null,
  result blob
) strict;

create unique index forebay_finished_id on forebay_finished (id) where by_id = 1;
create index forebay_finished_queue on forebay_finished (queue, finished_at);

create table forebay_dead (
  seq integer primary key,
  id text not null,
  by_id integer not null,
  queue text not null,
  task text not null,
  state text not null check (state = 'dead'),
  priority integer not null,
  options text,
  attempt integer not null,
  failures integer not null,
  crashes integer not null,
  created_at integer not null,
  updated_at integer not null,
  ready_at integer not null,
  run_at integer not null,
  rank integer not null,
  capped integer not null,
  worker text,
  started_at integer,
  deadline_at integer,
  expires_at integer,
  unique_key text,
  cancel_reason text,
  errors text,
  finished_at integer not null,
  reason text,
  payload blob not null,
  result blob
) strict;

create unique index forebay_dead_id on forebay_dead (id) where by_id = 1;
create index forebay_dead_queue on forebay_dead (queue, finished_at);

-- Every job, wherever it is. `place` names the table, so that a search can leave one out. The casts give a
-- column one affinity in all three: else SQLite reads all rows and sorts them instead of merging by seq.
create view forebay_all_jobs as
  select 'live' as place, by_id, id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
    updated_at, ready_at, run_at, rank, capped, gate, worker, started_at, lease_expires_at, deadline_at, expires_at,
    unique_key, cancel_reason, errors, cast(null as integer) as finished_at, cast(null as text) as reason,
    cast(null as blob) as result
  from forebay_jobs
  union all
  select 'finished', by_id, id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
    updated_at, ready_at, run_at, rank, capped, cast(null as text), worker, started_at, cast(null as integer), deadline_at, expires_at,
    unique_key, cancel_reason, errors, finished_at, reason, result
  from forebay_finished
  union all
  select 'dead', by_id, id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
    updated_at, ready_at, run_at, rank, capped, cast(null as text), worker, started_at, cast(null as integer), deadline_at, expires_at,
    unique_key, cancel_reason, errors, finished_at, reason, result
  from forebay_dead;

-- Keys stand beside the jobs, so that moving a job between tables does not touch them.
create table forebay_keys (
  queue text not null,
  kind text not null check (kind in ('unique', 'once')),
  key text not null,
  job_id text not null,
  until integer,
  primary key (queue, kind, key)
) strict, without rowid;

create index forebay_keys_until on forebay_keys (until) where until is not null;

-- Attempts that failed or were lost; the one that succeeded is on the job itself.
create table forebay_attempts (
  job_id text not null,
  attempt integer not null,
  ending text not null,
  -- Who ran it, and who wrote down how it ended: after a sweep these are two.
  worker text,
  settled_by text not null,
  started_at integer,
  ended_at integer not null,
  error text not null,
  primary key (job_id, attempt)
) strict, without rowid;

create table forebay_events (
  number integer primary key autoincrement,
  kind text not null,
  at integer not null,
  job_id text,
  queue text,
  attempt integer,
  actor text,
  detail text not null
) strict;

create index forebay_events_job on forebay_events (job_id) where job_id is not null;
create index forebay_events_at on forebay_events (at);

-- Jobs by queue and state. SQLite has one writer anyway, so a counter row holds nobody up. An insert leaves
-- the counting to whoever writes next: jobs with a greater seq than the row ('', 'counted') says are not
-- counted yet.
create table forebay_counts (
  queue text not null,
  state text not null,
  jobs integer not null,
  primary key (queue, state)
) strict, without rowid;

create table forebay_archive (
  number integer primary key,
  id text not null,
  queue text not null,
  task text not null,
  state text not null,
  created_at integer not null,
  finished_at integer not null,
  day text not null,
  duration_ms integer,
  attempt integer not null,
  failures integer not null,
  excerpt text not null,
  reason text
) strict;

create index forebay_archive_day on forebay_archive (day, finished_at);
create index forebay_archive_task on forebay_archive (task, finished_at);
create index forebay_archive_queue on forebay_archive (queue, finished_at);

create table forebay_workers (
  id text primary key,
  host text not null,
  pid integer not null,
  queues text not null,
  state text not null,
  started_at integer not null,
  beat_at integer not null
) strict, without rowid;

create table forebay_duties (
  name text primary key,
  due_at integer not null,
  -- How far a duty that goes through the jobs by seq has come.
  walked_to integer not null default 0
) strict, without rowid;
