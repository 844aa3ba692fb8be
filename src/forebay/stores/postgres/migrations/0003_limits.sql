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
