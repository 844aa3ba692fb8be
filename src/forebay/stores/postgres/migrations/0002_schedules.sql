-- oldest: 1
-- Schedules and what became of their runs.
-- A program that knows only the schema before works on: it fires no schedules, and leaves them to others.

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
