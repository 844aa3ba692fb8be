-- oldest: 6
-- Metrics, and how many jobs of a queue were removed. A program that knows only the schemas before works on: what it
-- removes is not counted, so fewer jobs seem to have come.

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
