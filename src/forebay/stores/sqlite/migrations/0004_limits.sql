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
