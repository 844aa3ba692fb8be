-- oldest: 5
-- Metrics, and how many jobs of a queue were removed. A program that knows only the schemas before works on: what it
-- removes is not counted, so fewer jobs seem to have come.

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
