-- min_program: 1
-- The schema of the first release. `forebay_jobs` holds live jobs only; final ones move to `forebay_finished` (completed,
-- cancelled) or `forebay_dead` in the transaction that ends them, so that history never slows a claim.
-- Tables carry a prefix because they may live in the user's own database file.

create table forebay_queues (
  name text primary key,
  state text not null check (state in ('active', 'paused', 'draining', 'dropped')),
  settings text not null,
  scoring_version integer not null,
  -- While a change of scoring is carried out: the last seq that has its new rank.
  rescored_to_seq integer,
  created_at integer not null,
  updated_at integer not null
) strict, without rowid;

create table forebay_jobs (
  -- Grows with every job that is accepted and is never used twice, so it names a job in all three tables.
  seq integer primary key,
  id text not null,
  -- 1 if the id was brought by the caller and has to be looked up; a generated id contains its seq.
  has_custom_id integer not null default 0,
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
  age_capped integer not null default 0,
  rescore_at integer,
  -- Behind a gate a pending job is out of the claim's order and in that of its gate.
  lane text,
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

create unique index forebay_jobs_id on forebay_jobs (id) where has_custom_id = 1;

-- claim, peek: the order of a queue (gate null) and of each gate, by class. seq, the rowid, is the last
-- column of every index.
create index forebay_jobs_ready on forebay_jobs (queue, lane, age_capped, rank)
  where state = 'pending';
-- promote, and how long a worker may sleep.
create index forebay_jobs_delayed on forebay_jobs (queue, run_at)
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
  has_custom_id integer not null,
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
  age_capped integer not null,
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

create unique index forebay_finished_id on forebay_finished (id) where has_custom_id = 1;
create index forebay_finished_queue on forebay_finished (queue, finished_at);

create table forebay_dead (
  seq integer primary key,
  id text not null,
  has_custom_id integer not null,
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
  age_capped integer not null,
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

create unique index forebay_dead_id on forebay_dead (id) where has_custom_id = 1;
create index forebay_dead_queue on forebay_dead (queue, finished_at);

-- Every job, wherever it is. `place` names the table, so that a search can leave one out. The casts give a
-- column one affinity in all three: else SQLite reads all rows and sorts them instead of merging by seq.
create view forebay_all_jobs as
  select 'live' as location, has_custom_id, id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
    updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at, deadline_at, expires_at,
    unique_key, cancel_reason, errors, cast(null as integer) as finished_at, cast(null as text) as reason,
    cast(null as blob) as result
  from forebay_jobs
  union all
  select 'finished', has_custom_id, id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
    updated_at, ready_at, run_at, rank, age_capped, cast(null as text), worker, started_at, cast(null as integer), deadline_at, expires_at,
    unique_key, cancel_reason, errors, finished_at, reason, result
  from forebay_finished
  union all
  select 'dead', has_custom_id, id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes, created_at,
    updated_at, ready_at, run_at, rank, age_capped, cast(null as text), worker, started_at, cast(null as integer), deadline_at, expires_at,
    unique_key, cancel_reason, errors, finished_at, reason, result
  from forebay_dead;

-- Keys stand beside the jobs, so that moving a job between tables does not touch them.
create table forebay_job_keys (
  queue text not null,
  kind text not null check (kind in ('unique', 'idempotency')),
  key text not null,
  job_id text not null,
  held_until integer,
  primary key (queue, kind, key)
) strict, without rowid;

create index forebay_job_keys_held_until on forebay_job_keys (held_until) where held_until is not null;

-- Attempts that failed or were lost; the one that succeeded is on the job itself.
create table forebay_failed_attempts (
  job_id text not null,
  attempt integer not null,
  outcome text not null,
  -- Who ran it, and who wrote down how it ended: after a sweep these are two.
  worker text,
  settled_by text not null,
  started_at integer,
  ended_at integer not null,
  error text not null,
  primary key (job_id, attempt)
) strict, without rowid;

create table forebay_events (
  id integer primary key autoincrement,
  kind text not null,
  occurred_at integer not null,
  job_id text,
  queue text,
  attempt integer,
  actor text,
  detail text not null,
  -- As JSON: by name what was before and what is after.
  changes text
) strict;

create index forebay_events_job on forebay_events (job_id) where job_id is not null;
create index forebay_events_occurred_at on forebay_events (occurred_at);

-- Jobs by queue and state. SQLite has one writer anyway, so a counter row holds nobody up. An insert leaves
-- the counting to whoever writes next: jobs with a greater seq than the row ('', 'counted') says are not
-- counted yet.
create table forebay_queue_counts (
  queue text not null,
  state text not null,
  jobs integer not null,
  primary key (queue, state)
) strict, without rowid;

create table forebay_job_archive (
  entry_id integer primary key,
  job_id text not null,
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

create index forebay_job_archive_day on forebay_job_archive (day, finished_at);
create index forebay_job_archive_task on forebay_job_archive (task, finished_at);
create index forebay_job_archive_queue on forebay_job_archive (queue, finished_at);

create table forebay_workers (
  id text primary key,
  host text not null,
  pid integer not null,
  queues text not null,
  state text not null,
  started_at integer not null,
  heartbeat_at integer not null,
  -- What else a worker says, as JSON: a reader takes what it knows, and defaults for the rest.
  details text not null default '{}'
) strict, without rowid;

create table forebay_maintenance (
  name text primary key,
  due_at integer not null,
  -- How far a duty that goes through the jobs by seq has come.
  scan_position integer not null default 0
) strict, without rowid;

-- What attempts say about themselves: the latest progress, log lines, steps that are done.
create table forebay_job_progress (
  seq integer not null,
  kind text not null check (kind = 'progress' or kind = 'log' or kind = 'step'),
  -- The order among notes of one kind; the one progress has 0.
  position integer not null,
  -- Steps have one.
  name text,
  attempt integer not null,
  recorded_at integer not null,
  -- JSON of a progress or a line; the result of a step as it was given.
  body any not null,
  -- All notes of a job stand together, in order: they are read and removed by one range.
  primary key (seq, kind, position)
) strict, without rowid;

create unique index forebay_job_progress_step on forebay_job_progress (seq, name) where kind = 'step';

create table forebay_worker_commands (
  seq integer primary key,
  id text not null,
  worker text not null,
  kind text not null,
  queue text,
  actor text not null,
  sent_at integer not null,
  expires_at integer not null,
  delivered_at integer,
  response text
) strict;

create unique index forebay_worker_commands_id on forebay_worker_commands (id);
-- Every worker looks here once a second, and it is nearly always empty.
create index forebay_worker_commands_pending on forebay_worker_commands (worker) where delivered_at is null;

-- Schedules and what became of their runs.
create table forebay_schedules (
  name text primary key,
  -- What it shall do, as JSON.
  definition text not null,
  -- Grows with every change: who has worked out a move from an older one makes none.
  revision integer not null,
  is_paused integer not null,
  -- The time of the next run, and when it is worth a look; none if there is no other, or it is paused.
  next_run_at integer,
  check_at integer,
  last_run_at integer,
  last_job_id text,
  enqueued_runs integer not null,
  skipped_runs integer not null,
  failed_runs integer not null,
  created_at integer not null,
  updated_at integer not null
) strict;

create index forebay_schedules_check on forebay_schedules (check_at, name) where check_at is not null;

create table forebay_schedule_runs (
  id integer primary key,
  schedule text not null,
  planned_at integer not null,
  status text not null,
  recorded_at integer not null,
  job_id text,
  reason text not null,
  last_planned_at integer,
  runs integer not null
) strict;

create index forebay_schedule_runs_schedule on forebay_schedule_runs (schedule, id);

-- Limits, each with what is left of its rate.
create table forebay_limits (
  scope text primary key,
  concurrency integer,
  rate integer,
  per_ms integer not null,
  burst integer,
  -- What was left at that time, in parts of a token, of which a token has `per_ms`.
  token_parts integer not null,
  refilled_at integer not null
) strict, without rowid;

-- What is left of rates by key, for each value.
create table forebay_rate_buckets (
  scope text primary key,
  token_parts integer not null,
  refilled_at integer not null
) strict, without rowid;

-- Which running jobs have a place under limits of tasks and keys. A row of a job that does not run any more counts
-- for nothing, so none has to be removed in time.
create table forebay_limit_slots (
  scope text not null,
  seq integer not null,
  id text not null,
  primary key (scope, seq)
) strict, without rowid;

create index forebay_limit_slots_id on forebay_limit_slots (id);

-- Gates of limits with jobs behind them, and when a claim of the queue shall look there.
create table forebay_limit_lanes (
  queue text not null,
  scope text not null,
  recheck_at integer not null,
  primary key (queue, scope)
) strict, without rowid;

create index forebay_limit_lanes_recheck on forebay_limit_lanes (queue, recheck_at);

-- Jobs that depend on others. An edge goes with its child; one to a parent that is gone stays as it was. A parent that
-- completes lowers `unmet` of its child and leaves the edge as it is: an open one is met if its parent has completed, or had
-- and is gone since, and the list has nothing to do for it any more.
create table forebay_dependencies (
  child_id text not null,
  -- Its place among the parents that the child named.
  position integer not null,
  parent_id text not null,
  on_failure text not null check (on_failure in ('cancel', 'fail', 'ignore', 'hold')),
  state text not null check (state in ('open', 'met', 'held', 'failed')),
  primary key (child_id, position)
) strict, without rowid;

-- What depends on a job: all of it, and what its end concerns.
create index forebay_dependencies_parent on forebay_dependencies (parent_id, state, child_id, position);

-- The list: jobs that others depend on and that have ended, or were revived, and what that means is not done yet.
create table forebay_dependency_outbox (
  id integer primary key,
  job_id text not null,
  event text not null,
  -- The last edge that was looked at, where a job that has completed has more of them than one transaction takes.
  cursor_child_id text not null default '',
  cursor_position integer not null default 0
) strict;

-- The live jobs of each sequence. The one with the lowest number may run, the others are blocked.
create table forebay_sequences (
  name text not null,
  position integer not null,
  job_id text not null,
  primary key (name, position)
) strict, without rowid;

create index forebay_sequences_job on forebay_sequences (job_id);

-- Shares that have jobs waiting, and where their turns are.
create table forebay_fairness_keys (
  queue text not null,
  fairness_key text not null,
  virtual_time integer not null,
  primary key (queue, fairness_key)
) strict, without rowid;

create index forebay_fairness_keys_virtual_time on forebay_fairness_keys (queue, virtual_time, fairness_key);

-- Shares with jobs behind the limit of a scope: one lane for each, its turn there, and the turn of its share in the queue.
create table forebay_limit_fairness_lanes (
  queue text not null,
  scope text not null,
  fairness_key text not null,
  virtual_time integer not null,
  resume_virtual_time integer not null,
  primary key (queue, scope, fairness_key)
) strict, without rowid;

create index forebay_limit_fairness_lanes_virtual_time on forebay_limit_fairness_lanes (queue, scope, virtual_time, fairness_key);
create index forebay_limit_fairness_lanes_key on forebay_limit_fairness_lanes (queue, fairness_key);

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
  resolution_ms integer not null,
  starts_at integer not null,
  queue text not null,
  worker text not null,
  -- What happened in that time, packed: see domain/metrics.py.
  body blob not null,
  primary key (resolution_ms, starts_at, queue, worker)
) strict, without rowid;

create table forebay_removed_counts (
  queue text primary key,
  jobs integer not null
) strict, without rowid;

-- The audit log by itself: actions of operators, which stay when the job of an action goes. `position`, `previous` and
-- `hash` are written when a line joins the chain of hashes. Numbers are from one series with those of events.
create table forebay_audit (
  id integer primary key,
  kind text not null,
  occurred_at integer not null,
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
