-- oldest: 1
-- The schema of the first release. `forebay_jobs` holds live jobs only; final ones move to `forebay_finished` (completed,
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
  -- Behind nearly all others, so that a query of another column need not step over a large one.
  payload blob not null,
  -- How many of the jobs that a blocked one depends on it still waits for.
  unmet integer not null default 0
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
-- Blocked jobs of a queue, for when it is dropped.
create index forebay_jobs_blocked on forebay_jobs (queue, run_at) where state = 'blocked';

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
  detail text not null,
  -- As JSON: by name what was before and what is after.
  changes text
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
  beat_at integer not null,
  -- What else a worker says, as JSON: a reader takes what it knows, and defaults for the rest.
  said text not null default '{}'
) strict, without rowid;

create table forebay_duties (
  name text primary key,
  due_at integer not null,
  -- How far a duty that goes through the jobs by seq has come.
  walked_to integer not null default 0
) strict, without rowid;

-- What attempts say about themselves: the latest progress, log lines, steps that are done.
create table forebay_notes (
  seq integer not null,
  kind text not null check (kind = 'progress' or kind = 'line' or kind = 'step'),
  -- The order among notes of one kind; the one progress has 0.
  number integer not null,
  -- Steps have one.
  name text,
  attempt integer not null,
  at integer not null,
  -- JSON of a progress or a line; the result of a step as it was given.
  body any not null,
  -- All notes of a job stand together, in order: they are read and removed by one range.
  primary key (seq, kind, number)
) strict, without rowid;

create unique index forebay_notes_step on forebay_notes (seq, name) where kind = 'step';

create table forebay_commands (
  number integer primary key,
  id text not null,
  worker text not null,
  kind text not null,
  queue text,
  actor text not null,
  sent_at integer not null,
  expires_at integer not null,
  taken_at integer,
  answer text
) strict;

create unique index forebay_commands_id on forebay_commands (id);
-- Every worker looks here once a second, and it is nearly always empty.
create index forebay_commands_waiting on forebay_commands (worker) where taken_at is null;

-- Schedules and what became of their runs.
create table forebay_schedules (
  name text primary key,
  -- What it shall do, as JSON.
  definition text not null,
  -- Grows with every change: who has worked out a move from an older one makes none.
  revision integer not null,
  is_paused integer not null,
  -- The time of the next run, and when it is worth a look; none if there is no other, or it is paused.
  next_at integer,
  due_at integer,
  last_at integer,
  last_job_id text,
  fired integer not null,
  skipped integer not null,
  failed integer not null,
  created_at integer not null,
  updated_at integer not null
) strict;

create index forebay_schedules_due on forebay_schedules (due_at, name) where due_at is not null;

create table forebay_firings (
  number integer primary key,
  name text not null,
  at integer not null,
  status text not null,
  recorded_at integer not null,
  job_id text,
  reason text not null,
  until_at integer,
  count integer not null
) strict;

create index forebay_firings_of on forebay_firings (name, number);

-- Limits, each with what is left of its rate.
create table forebay_limits (
  scope text primary key,
  concurrency integer,
  rate integer,
  per_ms integer not null,
  burst integer,
  -- What was left at that time, in parts of a token, of which a token has `per_ms`.
  parts integer not null,
  at integer not null
) strict, without rowid;

-- What is left of rates by key, for each value.
create table forebay_buckets (
  scope text primary key,
  parts integer not null,
  at integer not null
) strict, without rowid;

-- Which running jobs have a place under limits of tasks and keys. A row of a job that does not run any more counts
-- for nothing, so none has to be removed in time.
create table forebay_places (
  scope text not null,
  seq integer not null,
  id text not null,
  primary key (scope, seq)
) strict, without rowid;

create index forebay_places_id on forebay_places (id);

-- Gates of limits with jobs behind them, and when a claim of the queue shall look there.
create table forebay_closed (
  queue text not null,
  scope text not null,
  look_at integer not null,
  primary key (queue, scope)
) strict, without rowid;

create index forebay_closed_look on forebay_closed (queue, look_at);

-- Jobs that depend on others. An edge goes with its child; one to a parent that is gone stays as it was. A parent that
-- completes lowers `unmet` of its child and leaves the edge as it is: an open one is met if its parent has completed, or had
-- and is gone since, and the list has nothing to do for it any more.
create table forebay_edges (
  child text not null,
  -- Its place among the parents that the child named.
  number integer not null,
  parent text not null,
  on_failure text not null check (on_failure in ('cancel', 'fail', 'ignore', 'hold')),
  state text not null check (state in ('open', 'met', 'held', 'failed')),
  primary key (child, number)
) strict, without rowid;

-- What depends on a job: all of it, and what its end concerns.
create index forebay_edges_parent on forebay_edges (parent, state, child, number);

-- The list: jobs that others depend on and that have ended, or were revived, and what that means is not done yet.
create table forebay_aftermaths (
  number integer primary key,
  parent text not null,
  aftermath text not null,
  -- The last edge that was looked at, where a job that has completed has more of them than one transaction takes.
  after_child text not null default '',
  after_number integer not null default 0
) strict;

-- The live jobs of each sequence. The one with the lowest number may run, the others are blocked.
create table forebay_sequences (
  name text not null,
  number integer not null,
  id text not null,
  primary key (name, number)
) strict, without rowid;

create index forebay_sequences_id on forebay_sequences (id);

-- Shares that have jobs waiting, and where their turns are.
create table forebay_shares (
  queue text not null,
  share text not null,
  turn integer not null,
  primary key (queue, share)
) strict, without rowid;

create index forebay_shares_turn on forebay_shares (queue, turn, share);

-- Shares with jobs behind the limit of a scope: one lane for each, its turn there, and the turn of its share in the queue.
create table forebay_lanes (
  queue text not null,
  scope text not null,
  share text not null,
  turn integer not null,
  resume integer not null,
  primary key (queue, scope, share)
) strict, without rowid;

create index forebay_lanes_turn on forebay_lanes (queue, scope, turn, share);
create index forebay_lanes_share on forebay_lanes (queue, share);

-- Documents that are kept for others, such as API keys.
create table forebay_documents (
  kind text not null,
  name text not null,
  body text not null,
  revision integer not null,
  created_at integer not null,
  updated_at integer not null,
  primary key (kind, name)
) strict, without rowid;

-- Metrics, and how many jobs of a queue were removed.
create table forebay_metrics (
  tier integer not null,
  start integer not null,
  queue text not null,
  worker text not null,
  -- What happened in that time, packed: see domain/metrics.py.
  body blob not null,
  primary key (tier, start, queue, worker)
) strict, without rowid;

create table forebay_removed (
  queue text primary key,
  jobs integer not null
) strict, without rowid;

-- The audit log by itself: actions of operators, which stay when the job of an action goes. `position`, `previous` and
-- `hash` are written when a line joins the chain of hashes. Numbers are from one series with those of events.
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
