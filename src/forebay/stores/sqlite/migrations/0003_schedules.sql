-- oldest: 1
-- Schedules and what became of their runs.
-- A program that knows only the schemas before works on: it fires no schedules, and leaves them to others.

create table forebay_schedules (
  name text primary key,
  -- What it shall do, as JSON.
  definition text not null,
  -- Grows with every change: who has worked out a move from an older one makes none.
  revision integer not null,
  is_paused integer not null,
  -- The time of the next run, and when it is worth a look; none if there is no other, or it is paused.
  next_at integer,
  due_at integer,
  last_at integer,
  last_job_id text,
  fired integer not null,
  skipped integer not null,
  failed integer not null,
  created_at integer not null,
  updated_at integer not null
) strict;

create index forebay_schedules_due on forebay_schedules (due_at, name) where due_at is not null;

create table forebay_firings (
  number integer primary key,
  name text not null,
  at integer not null,
  status text not null,
  recorded_at integer not null,
  job_id text,
  reason text not null,
  until_at integer,
  count integer not null
) strict;

create index forebay_firings_of on forebay_firings (name, number);
