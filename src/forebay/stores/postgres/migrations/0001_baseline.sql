-- oldest: 1
-- The schema of the first release. `jobs` holds live jobs only, and a claim does not touch its row: what state a job is in is
-- said by the table its one narrow row is in. `ready` is pending, `gated` is pending behind a gate, `due` is
-- scheduled or retrying, `blocked` is blocked, `leases` is running. Final jobs move to `finished` (completed, cancelled) or `dead` in
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

-- Tags and ids in the options of a job, as numbers: those of different texts may be the same, so that who finds a job by
-- them looks at the texts too. Options that cannot be read have none. The sign for a zero character stands in its place,
-- since PostgreSQL reads no JSON with one.
create function forebay.marks(words text) returns bigint[]
language plpgsql immutable cost 1000
as $$
declare
  options json;
begin
  -- Not where it is declared: what goes wrong there is not caught.
  options := replace(words, '\u0000', '\u2400');
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
  payload bytea not null,
  -- Set by whoever inserts a job that depends on this one, so that all who end it know without a look at the edges.
  has_dependants boolean not null default false
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
-- What a search among many finished jobs goes by: lists of one queue, of one task, of one key, of those that were
-- cancelled, each in the order of seq, and marks for what stands in the options.
create index finished_queue_list on forebay.finished (queue, seq);
create index finished_task_list on forebay.finished (task, seq);
create index finished_key_list on forebay.finished (unique_key, seq) where unique_key is not null;
create index finished_cancelled_list on forebay.finished (seq) where state = 'cancelled';
-- Without a list of what comes in: whoever settles when it is full would have to work all of it in.
create index finished_marks on forebay.finished using gin (forebay.marks(options)) with (fastupdate = off)
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
create index dead_queue_list on forebay.dead (queue, seq);
create index dead_task_list on forebay.dead (task, seq);
create index dead_key_list on forebay.dead (unique_key, seq) where unique_key is not null;
create index dead_marks on forebay.dead using gin (forebay.marks(options)) with (fastupdate = off)
where options ~ '"(tags|idempotency_key|correlation_id|parent_id)":';

-- Live jobs with the state that their narrow row says.
create view forebay.live_jobs as
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

-- Every job with what lists go by, and without a look at the narrow row of a live one, which tells its state.
create view forebay.listing as
  select 'live' as place, seq, queue, task, null::text as state, unique_key, created_at from forebay.jobs
  union all
  select 'finished', seq, queue, task, state, unique_key, created_at from forebay.finished
  union all
  select 'dead', seq, queue, task, state, unique_key, created_at from forebay.dead;

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
  detail text not null,
  -- As JSON: by name what was before and what is after.
  changes text
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

-- Schedules and what became of their runs.
create table forebay.schedules (
  name text collate "C" primary key,
  -- What it shall do, as JSON.
  definition text not null,
  -- Grows with every change: who has worked out a move from an older one makes none.
  revision bigint not null,
  is_paused boolean not null,
  -- The time of the next run, and when it is worth a look; none if there is no other, or it is paused.
  next_at bigint,
  due_at bigint,
  last_at bigint,
  last_job_id text collate "C",
  fired bigint not null,
  skipped bigint not null,
  failed bigint not null,
  created_at bigint not null,
  updated_at bigint not null
);

create index schedules_due on forebay.schedules (due_at, name) where due_at is not null;

create table forebay.firings (
  number bigint generated always as identity primary key,
  name text collate "C" not null,
  at bigint not null,
  status text not null,
  recorded_at bigint not null,
  job_id text collate "C",
  reason text not null,
  until_at bigint,
  count bigint not null
);

create index firings_of on forebay.firings (name, number);

-- Limits, each with what is left of its rate.
create table forebay.limits (
  scope text collate "C" primary key,
  concurrency bigint,
  rate bigint,
  per_ms bigint not null,
  burst bigint,
  -- What was left at that time, in parts of a token, of which a token has `per_ms`.
  parts bigint not null,
  at bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What is left of rates by key, for each value.
create table forebay.buckets (
  scope text collate "C" primary key,
  parts bigint not null,
  at bigint not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Which running jobs have a place under limits of tasks and keys. A row of a job that does not run any more counts
-- for nothing, so none has to be removed in time.
create table forebay.places (
  scope text collate "C" not null,
  id text collate "C" not null,
  -- Whoever hears late of an attempt that has ended must not take the place of the next one.
  attempt bigint not null,
  primary key (scope, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create index places_id on forebay.places (id);

-- Gates of limits with jobs behind them, and when a claim of the queue shall look there. Only who holds the locks
-- of limits changes a row.
create table forebay.closed (
  queue text collate "C" not null,
  scope text collate "C" not null,
  look_at bigint not null,
  primary key (queue, scope)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index closed_look on forebay.closed (queue, look_at);

-- Scopes in which a place became free since somebody last looked. Whoever settles adds a row and waits for nobody.
create table forebay.freed (
  scope text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Jobs that depend on others. An edge goes with its child; one to a parent that is gone stays as it was. A parent that
-- completes lowers `unmet` of its child and leaves the edge as it is: an open one is met if its parent has completed, or had
-- and is gone since, and the list has nothing to do for it any more. 'unsure': an open edge of a job that came in a
-- transaction of its caller's, and nobody has looked at the parent yet.
create table forebay.edges (
  child text collate "C" not null,
  -- Its place among the parents that the child named.
  number integer not null,
  parent text collate "C" not null,
  on_failure text not null check (on_failure in ('cancel', 'fail', 'ignore', 'hold')),
  state text collate "C" not null check (state in ('open', 'met', 'held', 'failed', 'unsure')),
  primary key (child, number)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

create index edges_parent on forebay.edges (parent, child, number);

-- The list: jobs that others depend on and that have ended, or were revived, and what that means is not done yet. With
-- 'check': new jobs whose parents nobody has looked at, because they came in a transaction of their caller's.
create table forebay.aftermaths (
  number bigint generated always as identity primary key,
  parent text collate "C" not null,
  aftermath text not null,
  -- The last edge that was looked at, where a job that has completed has more of them than one transaction takes.
  after_child text collate "C" not null default '',
  after_number integer not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Whoever looks for the lowest line of the list goes by its number. Where the table was analysed when it was full and
-- again when it was empty, an index that has the number behind the parent seems to cost less, and all of its dead entries
-- are read and sorted; one that holds only what has a parent, as all do, serves only those who name one.
create index aftermaths_parent on forebay.aftermaths (parent, number) where parent is not null;

-- The live jobs of each sequence. The one with the lowest number may run, the others are blocked. One without a number
-- came in a transaction of its caller's, and gets it from whoever hears of the commit.
-- Whoever changes or counts rows of a sequence holds its lock (`sequences_lock`). All of its jobs are marked as jobs with
-- dependants, so that their ends are put on the list.
create table forebay.sequences (
  name text collate "C" not null,
  number bigint,
  id text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create unique index sequences_order on forebay.sequences (name, number);
create index sequences_id on forebay.sequences (id);

-- Shares that have jobs waiting, and where their turns are.
-- A row without a turn says that jobs of a share have come. Whoever inserts adds one and waits for nobody; the next claim
-- of the queue takes these away, and gives a share that has none its turn. Only who holds the lock of the queue's shares
-- changes a row that has one.
create table forebay.shares (
  queue text collate "C" not null,
  share text collate "C" not null,
  turn bigint
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index shares_turn on forebay.shares (queue, turn, share);
create index shares_share on forebay.shares (queue, share);

-- Shares with jobs behind the limit of a scope: one lane for each, its turn there, and the turn of its share in the queue.
-- A transaction changes rows of a queue only under the lock of the queue's shares.
create table forebay.lanes (
  queue text collate "C" not null,
  scope text collate "C" not null,
  share text collate "C" not null,
  turn bigint not null,
  resume bigint not null,
  primary key (queue, scope, share)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index lanes_turn on forebay.lanes (queue, scope, turn, share);
create index lanes_share on forebay.lanes (queue, share);

-- Documents that are kept for others, such as API keys.
create table forebay.documents (
  kind text collate "C" not null,
  name text collate "C" not null,
  body text not null,
  revision bigint not null,
  created_at bigint not null,
  updated_at bigint not null,
  primary key (kind, name)
);

-- Metrics, and how many jobs of a queue were removed.
create table forebay.metrics (
  tier bigint not null,
  start bigint not null,
  queue text collate "C" not null,
  worker text collate "C" not null,
  -- What happened in that time, packed: see domain/metrics.py.
  body bytea not null,
  primary key (tier, start, queue, worker)
);

create table forebay.removed (
  queue text collate "C" primary key,
  jobs bigint not null
);

-- The audit log by itself: actions of operators, which stay when the job of an action goes. `position`, `previous` and
-- `hash` are written when a line joins the chain of hashes. Numbers are from one series with those of events.
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
