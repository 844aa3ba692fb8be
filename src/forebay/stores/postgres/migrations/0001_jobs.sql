-- oldest: 1
-- The first schema. `jobs` holds live jobs only, and a claim does not touch its row: what state a job is in is
-- said by the table its one narrow row is in. `ready` is pending, `gated` is pending behind a gate, `due` is
-- scheduled or retrying, `leases` is running. Final jobs move to `finished` (completed, cancelled) or `dead` in
-- the transaction that ends them, so that history never slows a claim.
-- A move is delete and insert, never an update of `ready`: an updated row would lie behind every cursor.
-- Tables through which jobs flow are vacuumed by the number of their dead rows: by a share of all rows, as is usual,
-- a long backlog would keep its dead rows for long.
-- Times are milliseconds UTC. No foreign keys: they would lock the queue's row at every insert.

-- The one clock of the store. Not now(), which is the start of the caller's transaction.
create function forebay.now_ms() returns bigint
language sql volatile
as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint $$;

-- JSON that cannot be read counts as none, so that one damaged row stops no listing.
create function forebay.as_json(words text) returns json
language plpgsql immutable
as $$
begin
  return words::json;
exception when others then
  return null;
end
$$;

create table forebay.queues (
  name text collate "C" primary key,
  state text not null check (state in ('active', 'paused', 'draining', 'dropped')),
  settings text not null,
  rank_version integer not null,
  -- While a change of scoring is carried out: the last seq that has its new rank.
  reordered_to bigint,
  created_at bigint not null,
  updated_at bigint not null
);

create sequence forebay.seqs;

create table forebay.jobs (
  id text collate "C" primary key,
  -- Grows with every job that is accepted; ties in rank go by it.
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
  -- Where its narrow row is in the order, rewritten with every move that is not a claim.
  rank bigint not null,
  capped boolean not null default false,
  rescore_at bigint,
  -- The holder of the newest attempt that has ended, so that a repeated settlement is known for what it is.
  worker text collate "C",
  started_at bigint,
  deadline_at bigint,
  expires_at bigint,
  unique_key text collate "C",
  errors text,
  payload bytea not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create unique index jobs_seq on forebay.jobs (seq);
create index jobs_rescore on forebay.jobs (rescore_at) where rescore_at is not null;

create table forebay.ready (
  queue text collate "C" not null,
  capped boolean not null,
  rank bigint not null,
  seq bigint not null,
  id text collate "C" not null,
  expires_at bigint,
  -- The transaction that put it here: how a worker finds what came in behind its cursor.
  arrived xid8 not null default pg_current_xact_id(),
  primary key (queue, capped, rank, seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index ready_arrived on forebay.ready (queue, arrived);
create index ready_expires on forebay.ready (expires_at) where expires_at is not null;

create table forebay.gated (
  id text collate "C" primary key,
  queue text collate "C" not null,
  gate text collate "C" not null,
  capped boolean not null,
  rank bigint not null,
  seq bigint not null,
  expires_at bigint
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index gated_order on forebay.gated (queue, gate, capped, rank, seq);
create index gated_expires on forebay.gated (expires_at) where expires_at is not null;

create table forebay.due (
  id text collate "C" primary key,
  queue text collate "C" not null,
  run_at bigint not null,
  seq bigint not null,
  state text not null check (state in ('scheduled', 'retrying')),
  expires_at bigint
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index due_order on forebay.due (queue, run_at, seq);
create index due_expires on forebay.due (expires_at) where expires_at is not null;

create table forebay.leases (
  id text collate "C" primary key,
  seq bigint not null,
  queue text collate "C" not null,
  attempt integer not null,
  worker text collate "C" not null,
  until bigint not null,
  started_at bigint not null,
  updated_at bigint not null,
  -- No renewal goes past this.
  latest_at bigint not null,
  -- The job's own lease time; null takes the queue's.
  lease_ms bigint,
  swept_from text,
  cancel_reason text
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index leases_until on forebay.leases (until);
create index leases_cancel on forebay.leases (worker) where cancel_reason is not null;

-- By day, so that old days can be dropped whole. What falls on a day that nobody has made is in the default one.
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
  capped boolean not null,
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
  capped boolean not null,
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

-- Live jobs with the state that their narrow row says.
create view forebay.live_jobs as
  select j.id, j.seq, j.queue, j.task,
    case when l.id is not null then 'running' when d.id is not null then d.state else 'pending' end as state,
    j.payload, j.priority, j.options, coalesce(l.attempt, j.attempt) as attempt, j.failures, j.crashes,
    j.created_at, coalesce(l.updated_at, j.updated_at) as updated_at, j.ready_at, j.run_at, j.rank, j.capped,
    g.gate, coalesce(l.worker, j.worker) as worker, coalesce(l.started_at, j.started_at) as started_at,
    l.until as lease_expires_at, j.deadline_at, j.expires_at, j.unique_key, l.cancel_reason, j.errors
  from forebay.jobs j
  left join forebay.leases l on l.id = j.id
  left join forebay.due d on d.id = j.id
  left join forebay.gated g on g.id = j.id;

-- Every job, wherever it is. `place` names the table, so that a search can leave one out.
create view forebay.all_jobs as
  select 'live' as place, id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes,
    created_at, updated_at, ready_at, run_at, rank, capped, gate, worker, started_at, lease_expires_at,
    deadline_at, expires_at, unique_key, cancel_reason, errors, null::bigint as finished_at,
    null::text as reason, null::bytea as result
  from forebay.live_jobs
  union all
  select 'finished', id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes,
    created_at, updated_at, ready_at, run_at, rank, capped, null::text, worker, started_at, null::bigint,
    deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at, reason, result
  from forebay.finished
  union all
  select 'dead', id, seq, queue, task, state, payload, priority, options, attempt, failures, crashes,
    created_at, updated_at, ready_at, run_at, rank, capped, null::text, worker, started_at, null::bigint,
    deadline_at, expires_at, unique_key, cancel_reason, errors, finished_at, reason, result
  from forebay.dead;

-- Keys stand beside the jobs, so that moving a job between tables does not touch them.
create table forebay.keys (
  queue text collate "C" not null,
  kind text collate "C" not null check (kind in ('unique', 'once')),
  key text collate "C" not null,
  job_id text collate "C" not null,
  until bigint,
  primary key (queue, kind, key)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index keys_until on forebay.keys (until) where until is not null;

-- Attempts that failed or were lost; the one that succeeded is on the job itself.
create table forebay.attempts (
  job_id text collate "C" not null,
  attempt integer not null,
  ending text not null,
  -- Who ran it, and who wrote down how it ended: after a sweep these are two.
  worker text,
  settled_by text not null,
  started_at bigint,
  ended_at bigint not null,
  error text not null,
  primary key (job_id, attempt)
);

create table forebay.events (
  number bigint generated always as identity primary key,
  kind text not null,
  at bigint not null,
  job_id text collate "C",
  queue text collate "C",
  attempt integer,
  actor text,
  detail text not null
);

create index events_job on forebay.events (job_id) where job_id is not null;
create index events_at on forebay.events (at);

-- What attempts say about themselves: the latest progress, log lines, steps that are done.
create table forebay.notes (
  job_id text collate "C" not null,
  kind text collate "C" not null check (kind in ('progress', 'line', 'step')),
  number bigint not null,
  name text collate "C",
  attempt integer not null,
  at bigint not null,
  body bytea not null,
  primary key (job_id, kind, number)
);

create unique index notes_step on forebay.notes (job_id, name) where kind = 'step';

-- Jobs by queue and state. No writer updates a counter: in somebody's long transaction it would hold up the whole
-- queue. Each transaction appends what it has changed; a duty folds that into `counts`, and readers add both.
create table forebay.counts (
  queue text collate "C" not null,
  state text collate "C" not null,
  jobs bigint not null,
  primary key (queue, state)
);

create table forebay.count_deltas (
  number bigint generated always as identity primary key,
  queue text collate "C" not null,
  state text collate "C" not null,
  jobs bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create table forebay.archive (
  number bigint generated always as identity primary key,
  id text collate "C" not null,
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

create index archive_day on forebay.archive (day, finished_at, number);
create index archive_task on forebay.archive (task, finished_at, number);
create index archive_queue on forebay.archive (queue, finished_at);

create table forebay.workers (
  id text collate "C" primary key,
  host text not null,
  pid bigint not null,
  queues text not null,
  state text not null,
  started_at bigint not null,
  beat_at bigint not null,
  -- What else it says about itself, as JSON.
  said text not null
);

create table forebay.commands (
  id text collate "C" primary key,
  number bigint generated always as identity,
  worker text collate "C" not null,
  kind text not null,
  queue text,
  actor text not null,
  sent_at bigint not null,
  expires_at bigint not null,
  taken_at bigint,
  answer text
);

create index commands_waiting on forebay.commands (worker, number) where taken_at is null;
create index commands_expires on forebay.commands (expires_at);

create table forebay.duties (
  name text collate "C" primary key,
  due_at bigint not null,
  -- How far a duty that goes through the jobs by seq has come.
  walked_to bigint not null default 0
);
