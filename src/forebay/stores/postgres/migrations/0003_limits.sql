-- oldest: 1
-- Limits, each with what is left of its rate.
-- A program that knows only the schemas before works on, and does not see them: no limit should be set before all
-- workers are of this age.

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
