-- min_program: 1
-- The schema of the first release. `forebay_jobs` holds live jobs only; final ones move to `forebay_finished` (completed,
-- cancelled) or `forebay_dead` in the transaction that ends them, so that history never slows a claim.
-- Tables carry a prefix because they may live in the user's own database file.

create table forebay_queues (
  name text primary key,
  state text not null check (state in ('active', 'paused', 'draining', 'dropped')),
  settings text not null,
  scoring_version integer not null,
  -- During a rescoring: the last seq that has its new rank.
  rescored_to_seq integer,
  created_at integer not null,
  updated_at integer not null
) strict, without rowid;

create table forebay_jobs (
  -- Grows with every accepted job and is never reused, so it identifies a job in all three tables.
  seq integer primary key,
  id text not null,
  -- 1 if the caller brought the id, which has to be looked up; a generated id contains its seq.
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
  -- A pending job in a lane is outside the main order of its queue.
  lane text,
  -- The lease holder of the newest attempt; it stays after the end of the attempt, so that a repeated
  -- settlement is recognised.
  worker text,
  swept_from text,
  started_at integer,
  lease_expires_at integer,
  deadline_at integer,
  expires_at integer,
  unique_key text,
  cancel_reason text,
  errors text,
  -- Near the end of the row, so that queries of other columns need not read past a large payload.
  payload blob not null,
  -- Number of edges that block the job.
  unmet integer not null default 0
) strict;

create unique index forebay_jobs_id on forebay_jobs (id) where has_custom_id = 1;

-- claim, peek: the main order of a queue (lane null) and the order of each lane, by class. seq, the rowid, is
-- the last column of every index.
create index forebay_jobs_ready on forebay_jobs (queue, lane, age_capped, rank)
  where state = 'pending';
-- promote, and the sleep time of a worker.
create index forebay_jobs_delayed on forebay_jobs (queue, run_at)
  where state = 'scheduled' or state = 'retrying';
-- sweep; also small enough for a scan for the leases of one worker.
create index forebay_jobs_lease on forebay_jobs (lease_expires_at)
  where state = 'running';
create index forebay_jobs_rescore on forebay_jobs (rescore_at)
  where rescore_at is not null;
create index forebay_jobs_expires on forebay_jobs (expires_at)
  where expires_at is not null and state <> 'running';
create index forebay_jobs_cancel on forebay_jobs (worker)
  where cancel_reason is not null and state = 'running';
-- Blocked jobs of a dropped queue.
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

-- Every job, whatever table it is in. `location` names the table, so that a search can leave one out. The
-- casts give a column one affinity in all three: else SQLite sorts all rows instead of merging them by seq.
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

-- Keys have a table of their own, so that moving a job between tables does not touch them.
create table forebay_job_keys (
  queue text not null,
  kind text not null check (kind in ('unique', 'idempotency')),
  key text not null,
  job_id text not null,
  held_until integer,
  primary key (queue, kind, key)
) strict, without rowid;

create index forebay_job_keys_held_until on forebay_job_keys (held_until) where held_until is not null;

-- Failed and lost attempts; the successful one is on the job itself.
create table forebay_failed_attempts (
  job_id text not null,
  attempt integer not null,
  outcome text not null,
  -- The worker that ran it, and the one that settled it: after a sweep these differ.
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
  -- JSON: values before and after, by name.
  changes text
) strict;

create index forebay_events_job on forebay_events (job_id) where job_id is not null;
create index forebay_events_occurred_at on forebay_events (occurred_at);

-- Jobs by queue and state. SQLite has one writer anyway, so a counter row delays no transaction. An insert
-- leaves the counting to the next writer: jobs with a greater seq than the row ('', 'counted') has are not
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
  -- JSON: a reader takes the members that it knows, and defaults for the rest.
  details text not null default '{}'
) strict, without rowid;

create table forebay_maintenance (
  name text primary key,
  due_at integer not null,
  -- Position of a maintenance task that scans the jobs by seq.
  scan_position integer not null default 0
) strict, without rowid;

-- Latest progress, log lines and step results of jobs.
create table forebay_job_progress (
  seq integer not null,
  kind text not null check (kind = 'progress' or kind = 'log' or kind = 'step'),
  -- The order within one kind; the one progress has 0.
  position integer not null,
  -- Only steps have one.
  name text,
  attempt integer not null,
  recorded_at integer not null,
  -- JSON of a progress or a log line; the result of a step as it was given.
  body any not null,
  -- All rows of a job are adjacent, in order: they are read and removed by one range.
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
-- Every worker polls this once a second, and it is nearly always empty.
create index forebay_worker_commands_pending on forebay_worker_commands (worker) where delivered_at is null;

-- Schedules and the history of their runs.
create table forebay_schedules (
  name text primary key,
  -- JSON.
  definition text not null,
  -- Grows with every change: an advance that was computed from an older revision is not applied.
  revision integer not null,
  is_paused integer not null,
  -- The time of the next run, and of the next check; null without another run, or while paused.
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

-- Limits, each with its token bucket.
create table forebay_limits (
  scope text primary key,
  concurrency integer,
  rate integer,
  per_ms integer not null,
  burst integer,
  -- Tokens left at that time, in parts: a token has `per_ms` parts.
  token_parts integer not null,
  refilled_at integer not null
) strict, without rowid;

-- Token buckets of limits by key, one for each value, and of the rates of new jobs.
create table forebay_rate_buckets (
  scope text primary key,
  token_parts integer not null,
  refilled_at integer not null
) strict, without rowid;

-- Slots of running jobs under limits of tasks and keys. A row of a job that does not run any more counts for
-- nothing, so late removal does no harm.
create table forebay_limit_slots (
  scope text not null,
  seq integer not null,
  id text not null,
  primary key (scope, seq)
) strict, without rowid;

create index forebay_limit_slots_id on forebay_limit_slots (id);

-- Lanes of limits with parked jobs, and the time at which a claim of the queue rechecks them.
create table forebay_limit_lanes (
  queue text not null,
  scope text not null,
  recheck_at integer not null,
  primary key (queue, scope)
) strict, without rowid;

create index forebay_limit_lanes_recheck on forebay_limit_lanes (queue, recheck_at);

-- Edges from parents to children. An edge is removed with its child; one to a removed parent stays as it was.
-- A completed parent lowers `unmet` of its child and keeps the edge open. An open edge is met if its parent
-- has completed, or had and is removed, and the outbox has no entry for it any more.
create table forebay_dependencies (
  child_id text not null,
  -- Its position among the parents of the child.
  position integer not null,
  parent_id text not null,
  on_failure text not null check (on_failure in ('cancel', 'fail', 'ignore', 'hold')),
  state text not null check (state in ('open', 'met', 'held', 'failed')),
  primary key (child_id, position)
) strict, without rowid;

-- Dependants of a job: all of them, and those that its end affects.
create index forebay_dependencies_parent on forebay_dependencies (parent_id, state, child_id, position);

-- Dependency outbox: jobs with dependants whose end, or revive, is not propagated yet.
create table forebay_dependency_outbox (
  id integer primary key,
  job_id text not null,
  event text not null,
  -- The last resolved edge of a completed job with more edges than one transaction resolves.
  cursor_child_id text not null default '',
  cursor_position integer not null default 0
) strict;

-- Live jobs of each sequence. The one with the lowest position may run, the others are blocked.
create table forebay_sequences (
  name text not null,
  position integer not null,
  job_id text not null,
  primary key (name, position)
) strict, without rowid;

create index forebay_sequences_job on forebay_sequences (job_id);

-- Fairness keys with pending jobs, and their virtual times.
create table forebay_fairness_keys (
  queue text not null,
  fairness_key text not null,
  virtual_time integer not null,
  primary key (queue, fairness_key)
) strict, without rowid;

create index forebay_fairness_keys_virtual_time on forebay_fairness_keys (queue, virtual_time, fairness_key);

-- Fairness keys with jobs parked at the limit of a scope: one lane for each, its virtual time there, and the
-- virtual time of the key in the queue.
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

-- Documents of other packages, such as API keys.
create table forebay_documents (
  kind text not null,
  name text not null,
  body text not null,
  revision integer not null,
  created_at integer not null,
  updated_at integer not null,
  primary key (kind, name)
) strict, without rowid;

-- Metrics, and the number of removed jobs of each queue.
create table forebay_metrics (
  resolution_ms integer not null,
  starts_at integer not null,
  queue text not null,
  worker text not null,
  -- Packed values of that time span: see domain/metrics.py.
  body blob not null,
  primary key (resolution_ms, starts_at, queue, worker)
) strict, without rowid;

create table forebay_removed_counts (
  queue text primary key,
  jobs integer not null
) strict, without rowid;

-- Audit log: actions of operators, which outlive the job of an action. `position`, `previous` and `hash` are
-- written when a line is appended to the hash chain. Ids are from one series with those of events.
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
