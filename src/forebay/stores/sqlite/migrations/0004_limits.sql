-- oldest: 1
-- Limits, each with what is left of its rate.
-- A program that knows only the schemas before works on, and does not see them: no limit should be set before all
-- workers are of this age.

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
