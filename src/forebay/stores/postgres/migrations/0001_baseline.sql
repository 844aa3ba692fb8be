-- min_program: 1
-- Schema of the first release. `jobs` holds live jobs only, and a claim does not touch its row. The table of a job's
-- one narrow row tells its state: `ready` is pending, `side_lanes` is pending in a side lane, `delayed` is scheduled or
-- retrying, `blocked` is blocked, `leases` is running. The transaction that ends a job moves it to `finished`
-- (completed, cancelled) or `dead`, so that history never slows a claim.
-- A move is delete and insert, never an update of `ready`: an updated row would lie behind every claim cursor.
-- Tables through which jobs flow are vacuumed after a number of dead tuples. The usual share of all rows would keep dead
-- tuples for long while the backlog is long.
-- Times are milliseconds UTC. No foreign keys: they would lock the row of the queue at every insert.

-- The one clock of the store. Not now(), which is the start of the caller's transaction.
create function forebay.now_ms() returns bigint
language sql volatile
as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $$;

-- Null for unreadable JSON, so that one damaged row stops no listing.
create function forebay.try_json(body text) returns json
language plpgsql immutable
as $$
begin
  return body::json;
exception when others then
  return null;
end
$$;

-- Hashes of the tags and ids in the options of a job. Different texts may share a hash, so a search compares the texts
-- too. Unreadable options have none. U+2400 replaces the zero character, since PostgreSQL reads no JSON with one.
create function forebay.search_hashes(body text) returns bigint[]
language plpgsql immutable cost 1000
as $$
declare
  options json;
begin
  -- Not in the declaration: an error there is not caught.
  options := replace(body, '\u0000', '\u2400');
  return array(
    select hashtextextended('tags ' || tag, 0)
    from json_array_elements_text(coalesce(options -> 'tags', '[]')) as tag
    union all
    select hashtextextended(name || ' ' || (options ->> name), 0)
    from unnest(array['idempotency_key', 'correlation_id', 'parent_id']) as name
    where options ->> name is not null
  );
exception when others then
  return null;
end
$$;

create table forebay.queues (
  name text collate "C" primary key,
  state text not null check (state in ('active', 'paused', 'draining', 'dropped')),
  settings text not null,
  scoring_version integer not null,
  -- While a change of scoring is carried out: the last seq that has its new rank.
  rescored_to_seq bigint,
  created_at bigint not null,
  updated_at bigint not null
);

create sequence forebay.job_seq;

create table forebay.jobs (
  id text collate "C" primary key,
  -- Grows with every accepted job; breaks ties in rank.
  seq bigint not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  priority integer not null,
  -- Settings of the job that differ from the defaults, as JSON; null for most jobs.
  options text,
  -- The newest attempt that has ended; a running one is in `leases`.
  attempt integer not null default 0,
  failures integer not null default 0,
  crashes integer not null default 0,
  created_at bigint not null,
  updated_at bigint not null,
  ready_at bigint not null,
  run_at bigint not null,
  -- The sort key of its narrow row, rewritten with every move that is not a claim.
  rank bigint not null,
  age_capped boolean not null default false,
  rescore_at bigint,
  -- Worker of the newest attempt that has ended, so that a repeated settlement is recognised.
  worker text collate "C",
  started_at bigint,
  deadline_at bigint,
  expires_at bigint,
  unique_key text collate "C",
  errors text,
  payload bytea not null,
  -- Set by the insert of a job that depends on this one. So a settlement knows without a query of the dependencies.
  has_dependants boolean not null default false
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create unique index jobs_seq on forebay.jobs (seq);
create index jobs_rescore on forebay.jobs (rescore_at) where rescore_at is not null;

create table forebay.ready (
  queue text collate "C" not null,
  age_capped boolean not null,
  rank bigint not null,
  seq bigint not null,
  id text collate "C" not null,
  expires_at bigint,
  -- The transaction that inserted the row: by it a worker finds rows inserted behind its claim cursor.
  inserted_xid xid8 not null default pg_current_xact_id(),
  primary key (queue, age_capped, rank, seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index ready_inserted_xid on forebay.ready (queue, inserted_xid);
create index ready_expires on forebay.ready (expires_at) where expires_at is not null;

create table forebay.side_lanes (
  id text collate "C" primary key,
  queue text collate "C" not null,
  lane text collate "C" not null,
  age_capped boolean not null,
  rank bigint not null,
  seq bigint not null,
  expires_at bigint
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index side_lanes_order on forebay.side_lanes (queue, lane, age_capped, rank, seq);
create index side_lanes_expires on forebay.side_lanes (expires_at) where expires_at is not null;

create table forebay.delayed (
  id text collate "C" primary key,
  queue text collate "C" not null,
  run_at bigint not null,
  seq bigint not null,
  state text not null check (state in ('scheduled', 'retrying')),
  expires_at bigint
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index delayed_order on forebay.delayed (queue, run_at, seq);
create index delayed_expires on forebay.delayed (expires_at) where expires_at is not null;

create table forebay.blocked (
  id text collate "C" primary key,
  queue text collate "C" not null,
  run_at bigint not null,
  seq bigint not null,
  -- The number of its edges that are open or held.
  unmet integer not null check (unmet > 0),
  expires_at bigint
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index blocked_order on forebay.blocked (queue, run_at, seq);
create index blocked_expires on forebay.blocked (expires_at) where expires_at is not null;

create table forebay.leases (
  id text collate "C" primary key,
  seq bigint not null,
  queue text collate "C" not null,
  attempt integer not null,
  worker text collate "C" not null,
  lease_expires_at bigint not null,
  started_at bigint not null,
  updated_at bigint not null,
  -- No renewal goes past this.
  lease_limit_at bigint not null,
  -- The job's own lease time; null takes the queue's.
  lease_ms bigint,
  swept_from text,
  cancel_reason text
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index leases_expires on forebay.leases (lease_expires_at);
create index leases_cancel on forebay.leases (worker) where cancel_reason is not null;

-- One partition per day, so that an old day is dropped at once. Rows of a day without a partition are in the default
-- one.
create table forebay.finished (
  id text collate "C" not null,
  seq bigint not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  state text not null check (state in ('completed', 'cancelled')),
  priority integer not null,
  options text,
  attempt integer not null,
  failures integer not null,
  crashes integer not null,
  created_at bigint not null,
  updated_at bigint not null,
  ready_at bigint not null,
  run_at bigint not null,
  rank bigint not null,
  age_capped boolean not null,
  worker text collate "C",
  started_at bigint,
  deadline_at bigint,
  expires_at bigint,
  unique_key text collate "C",
  cancel_reason text,
  errors text,
  finished_at bigint not null,
  reason text,
  payload bytea not null,
  result bytea
) partition by range (finished_at);

create index finished_id on forebay.finished (id);
create index finished_seq on forebay.finished (seq);
create index finished_queue on forebay.finished (queue, finished_at, seq);
-- Indexes of searches among many finished jobs: lists of one queue, of one task, of one key and of cancelled jobs, each
-- in the order of seq, and hashes of texts in the options.
create index finished_queue_list on forebay.finished (queue, seq);
create index finished_task_list on forebay.finished (task, seq);
create index finished_key_list on forebay.finished (unique_key, seq) where unique_key is not null;
create index finished_cancelled_list on forebay.finished (seq) where state = 'cancelled';
-- Without a pending list: the settlement that fills it would have to merge all of it into the index.
create index finished_search_hashes on forebay.finished using gin (forebay.search_hashes(options)) with (fastupdate = off)
where options ~ '"(tags|idempotency_key|correlation_id|parent_id)":';

create table forebay.finished_default partition of forebay.finished default;

create table forebay.dead (
  id text collate "C" primary key,
  seq bigint not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  state text not null check (state = 'dead'),
  priority integer not null,
  options text,
  attempt integer not null,
  failures integer not null,
  crashes integer not null,
  created_at bigint not null,
  updated_at bigint not null,
  ready_at bigint not null,
  run_at bigint not null,
  rank bigint not null,
  age_capped boolean not null,
  worker text collate "C",
  started_at bigint,
  deadline_at bigint,
  expires_at bigint,
  unique_key text collate "C",
  cancel_reason text,
  errors text,
  finished_at bigint not null,
  reason text,
  payload bytea not null,
  result bytea
);

create unique index dead_seq on forebay.dead (seq);
create index dead_queue on forebay.dead (queue, finished_at, seq);
create index dead_queue_list on forebay.dead (queue, seq);
create index dead_task_list on forebay.dead (task, seq);
create index dead_key_list on forebay.dead (unique_key, seq) where unique_key is not null;
create index dead_search_hashes on forebay.dead using gin (forebay.search_hashes(options)) with (fastupdate = off)
where options ~ '"(tags|idempotency_key|correlation_id|parent_id)":';

-- Live jobs with the state that their narrow row tells.
create view forebay.live_jobs as
  select j.id, j.seq, j.queue, j.task,
    case
      when l.id is not null then 'running'
      when d.id is not null then d.state
      when b.id is not null then 'blocked'
      else 'pending'
    end as state,
    j.payload, j.priority, j.options, coalesce(l.attempt, j.attempt) as attempt, j.failures, j.crashes,
    j.created_at, coalesce(l.updated_at, j.updated_at) as updated_at, j.ready_at, j.run_at, j.rank, j.age_capped,
    s.lane, coalesce(l.worker, j.worker) as worker, coalesce(l.started_at, j.started_at) as started_at,
    l.lease_expires_at, j.deadline_at, j.expires_at, j.unique_key, l.cancel_reason, j.errors
  from forebay.jobs j
  left join forebay.leases l on l.id = j.id
  left join forebay.delayed d on d.id = j.id
  left join forebay.side_lanes s on s.id = j.id
  left join forebay.blocked b on b.id = j.id;

-- Every job in any table. `location` names the table, so that a search can leave one out.
create view forebay.all_jobs as
  select 'live' as location, id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes,
    created_at, updated_at, ready_at, run_at, rank, age_capped, lane, worker, started_at, lease_expires_at,
    deadline_at, expires_at, unique_key, cancel_reason, errors, null::bigint as finished_at,
    null::text as reason, null::bytea as result
  from forebay.live_jobs
  union all
  select 'finished', id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes,
    created_at, updated_at, ready_at, run_at, rank, age_capped, null::text, worker, started_at, null::bigint,
    deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at, reason, result
  from forebay.finished
  union all
  select 'dead', id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes,
    created_at, updated_at, ready_at, run_at, rank, age_capped, null::text, worker, started_at, null::bigint,
    deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at, reason, result
  from forebay.dead;

-- Every job with the columns that lists are ordered and filtered by. It reads no narrow row, so a live job has no state
-- here.
create view forebay.job_index as
  select 'live' as location, seq, queue, task, null::text as state, unique_key, created_at from forebay.jobs
  union all
  select 'finished', seq, queue, task, state, unique_key, created_at from forebay.finished
  union all
  select 'dead', seq, queue, task, state, unique_key, created_at from forebay.dead;

-- Keys have a table of their own, so that moving a job between tables does not touch them.
create table forebay.job_keys (
  queue text collate "C" not null,
  kind text collate "C" not null check (kind in ('unique', 'idempotency')),
  key text collate "C" not null,
  job_id text collate "C" not null,
  held_until bigint,
  primary key (queue, kind, key)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index job_keys_held_until on forebay.job_keys (held_until) where held_until is not null;

-- Attempts that failed or were lost; a successful one is recorded on the job itself.
create table forebay.failed_attempts (
  job_id text collate "C" not null,
  attempt integer not null,
  outcome text not null,
  -- The worker that ran it, and the one that settled it: after a sweep they differ.
  worker text,
  settled_by text not null,
  started_at bigint,
  ended_at bigint not null,
  error text not null,
  primary key (job_id, attempt)
);

create table forebay.events (
  id bigint generated always as identity primary key,
  kind text not null,
  occurred_at bigint not null,
  job_id text collate "C",
  queue text collate "C",
  attempt integer,
  actor text,
  detail text not null,
  -- As JSON: by name the values before and after.
  changes text
);

create index events_job on forebay.events (job_id) where job_id is not null;
create index events_occurred_at on forebay.events (occurred_at);

-- Reports of attempts: the latest progress, log lines, results of steps.
create table forebay.job_progress (
  job_id text collate "C" not null,
  kind text collate "C" not null check (kind in ('progress', 'log', 'step')),
  position bigint not null,
  name text collate "C",
  attempt integer not null,
  recorded_at bigint not null,
  body bytea not null,
  primary key (job_id, kind, position)
);

create unique index job_progress_step on forebay.job_progress (job_id, name) where kind = 'step';

-- Jobs by queue and state. No writer updates a counter: in a long transaction of a caller it would block the whole
-- queue. Each transaction appends its changes; a maintenance task folds them into `queue_counts`, and readers add both.
create table forebay.queue_counts (
  queue text collate "C" not null,
  state text collate "C" not null,
  jobs bigint not null,
  primary key (queue, state)
);

create table forebay.queue_count_deltas (
  id bigint generated always as identity primary key,
  queue text collate "C" not null,
  state text collate "C" not null,
  jobs bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create table forebay.job_archive (
  entry_id bigint generated always as identity primary key,
  job_id text collate "C" not null,
  queue text collate "C" not null,
  task text collate "C" not null,
  state text not null,
  created_at bigint not null,
  finished_at bigint not null,
  day text collate "C" not null,
  duration_ms bigint,
  attempt integer not null,
  failures integer not null,
  excerpt text not null,
  reason text
);

create index job_archive_day on forebay.job_archive (day, finished_at, entry_id);
create index job_archive_task on forebay.job_archive (task, finished_at, entry_id);
create index job_archive_queue on forebay.job_archive (queue, finished_at);

create table forebay.workers (
  id text collate "C" primary key,
  host text not null,
  pid bigint not null,
  queues text not null,
  state text not null,
  started_at bigint not null,
  heartbeat_at bigint not null,
  -- The rest of its report, as JSON.
  details text not null
);

create table forebay.worker_commands (
  id text collate "C" primary key,
  seq bigint generated always as identity,
  worker text collate "C" not null,
  kind text not null,
  queue text,
  actor text not null,
  sent_at bigint not null,
  expires_at bigint not null,
  delivered_at bigint,
  response text
);

create index worker_commands_pending on forebay.worker_commands (worker, seq) where delivered_at is null;
create index worker_commands_expires on forebay.worker_commands (expires_at);

-- Maintenance tasks, low-water marks and scan marks.
create table forebay.maintenance (
  name text collate "C" primary key,
  due_at bigint not null,
  -- How far a task that scans has come.
  scan_position bigint not null default 0
);

create table forebay.schedules (
  name text collate "C" primary key,
  -- As JSON.
  definition text not null,
  -- Grows with every change: an advance computed from an older revision is refused.
  revision bigint not null,
  is_paused boolean not null,
  -- The time of the next run, and when to check it; null if there is no other run, or it is paused.
  next_run_at bigint,
  check_at bigint,
  last_run_at bigint,
  last_job_id text collate "C",
  enqueued_runs bigint not null,
  skipped_runs bigint not null,
  failed_runs bigint not null,
  created_at bigint not null,
  updated_at bigint not null
);

create index schedules_check on forebay.schedules (check_at, name) where check_at is not null;

create table forebay.schedule_runs (
  id bigint generated always as identity primary key,
  schedule text collate "C" not null,
  planned_at bigint not null,
  status text not null,
  recorded_at bigint not null,
  job_id text collate "C",
  reason text not null,
  last_planned_at bigint,
  runs bigint not null
);

create index schedule_runs_schedule on forebay.schedule_runs (schedule, id);

-- Limits, each with the token bucket of its rate.
create table forebay.limits (
  scope text collate "C" primary key,
  concurrency bigint,
  rate bigint,
  per_ms bigint not null,
  burst bigint,
  -- Left at `refilled_at`, in parts of a token; a token has `per_ms` parts.
  token_parts bigint not null,
  refilled_at bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Token buckets of rates by key, one for each value.
create table forebay.rate_buckets (
  scope text collate "C" primary key,
  token_parts bigint not null,
  refilled_at bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Running jobs that hold a slot under limits of tasks and keys. A row of a job that does not run any more counts for
-- nothing, so none has to be removed in time.
create table forebay.limit_slots (
  scope text collate "C" not null,
  id text collate "C" not null,
  -- A late report about an ended attempt must not release the slot of the next one.
  attempt bigint not null,
  primary key (scope, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create index limit_slots_id on forebay.limit_slots (id);

-- Limit lanes that have jobs, and when a claim of the queue rechecks them. Only a transaction that holds the locks of
-- the limits changes a row.
create table forebay.limit_lanes (
  queue text collate "C" not null,
  scope text collate "C" not null,
  recheck_at bigint not null,
  primary key (queue, scope)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index limit_lanes_recheck on forebay.limit_lanes (queue, recheck_at);

-- Scopes in which a slot was released since the last claim under limits. A settlement appends a row and waits for no
-- lock.
create table forebay.limit_releases (
  scope text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Edges from a job to the parents it waits for. An edge goes with its child; one to a deleted parent stays as it was.
-- The completion of a parent lowers `unmet` of its child and leaves the edge as it is. An open edge is met if its
-- parent has completed, or had and is gone since, and the outbox has no entry for it any more. 'unchecked': an open
-- edge of a job that was inserted in a caller transaction, whose parent is not checked yet.
create table forebay.dependencies (
  child_id text collate "C" not null,
  -- Position among the parents that the child named.
  position integer not null,
  parent_id text collate "C" not null,
  on_failure text not null check (on_failure in ('cancel', 'fail', 'ignore', 'hold')),
  state text collate "C" not null check (state in ('open', 'met', 'held', 'failed', 'unchecked')),
  primary key (child_id, position)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index dependencies_parent on forebay.dependencies (parent_id, child_id, position);

-- Outbox: ends and revivals of jobs with dependants that are not propagated yet. The event 'check' marks a new job of a
-- caller transaction whose parents are not checked yet.
create table forebay.dependency_outbox (
  id bigint generated always as identity primary key,
  job_id text collate "C" not null,
  event text not null,
  -- The last edge that was resolved, where a completed job has more edges than one transaction takes.
  cursor_child_id text collate "C" not null default '',
  cursor_position integer not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Partial, though every entry has a job: a query of the lowest id then cannot use this index. If the table was analysed
-- when it was full and again when it was empty, an index that ends with the id seems cheaper than the primary key. All
-- of its dead entries would be read and sorted.
create index dependency_outbox_job on forebay.dependency_outbox (job_id, id) where job_id is not null;

-- The live jobs of each sequence. The one with the lowest position may run, the others are blocked. A job without a
-- position comes from a caller transaction and gets it when its outbox entry is processed. A transaction that changes
-- or counts rows of a sequence holds its lock (`sequences_lock`). Every job of a sequence is marked `has_dependants`,
-- so that its end is put into the outbox.
create table forebay.sequences (
  name text collate "C" not null,
  position bigint,
  job_id text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create unique index sequences_order on forebay.sequences (name, position);
create index sequences_job on forebay.sequences (job_id);

-- Fairness keys that have jobs waiting, and their virtual times. A row without a virtual time says that jobs of the key
-- were inserted. An insert appends one and waits for no lock. The next claim of the queue deletes these rows and gives
-- a key without one its virtual time. Only a transaction that holds the fairness lock of the queue changes a row that
-- has one.
create table forebay.fairness_keys (
  queue text collate "C" not null,
  fairness_key text collate "C" not null,
  virtual_time bigint
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index fairness_keys_virtual_time on forebay.fairness_keys (queue, virtual_time, fairness_key);
create index fairness_keys_key on forebay.fairness_keys (queue, fairness_key);

-- Fairness keys with jobs in the lane of a limit: the virtual time of the key there, and the one it resumes from in the
-- queue. A transaction changes rows of a queue only under the fairness lock of the queue.
create table forebay.limit_fairness_lanes (
  queue text collate "C" not null,
  scope text collate "C" not null,
  fairness_key text collate "C" not null,
  virtual_time bigint not null,
  resume_virtual_time bigint not null,
  primary key (queue, scope, fairness_key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index limit_fairness_lanes_virtual_time on forebay.limit_fairness_lanes (queue, scope, virtual_time, fairness_key);
create index limit_fairness_lanes_key on forebay.limit_fairness_lanes (queue, fairness_key);

-- Documents of other parts of Forebay, such as API keys.
create table forebay.documents (
  kind text collate "C" not null,
  name text collate "C" not null,
  body text not null,
  revision bigint not null,
  created_at bigint not null,
  updated_at bigint not null,
  primary key (kind, name)
);

create table forebay.metrics (
  resolution_ms bigint not null,
  starts_at bigint not null,
  queue text collate "C" not null,
  worker text collate "C" not null,
  -- Counters of that time, packed: see domain/metrics.py.
  body bytea not null,
  primary key (resolution_ms, starts_at, queue, worker)
);

-- Removed jobs of each queue, for metrics.
create table forebay.removed_counts (
  queue text collate "C" primary key,
  jobs bigint not null
);

-- The audit log: actions of operators, which stay when the job of an action goes. `position`, `previous` and `hash` are
-- written when an entry joins the chain of hashes. Ids come from one series with those of events.
create table forebay.audit (
  id bigint primary key default nextval('forebay.events_id_seq'),
  kind text not null,
  occurred_at bigint not null,
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
create index audit_unchained on forebay.audit (id) where position is null;
