-- oldest: 1
-- Notes of running attempts, commands to workers, and more that workers say about themselves.
-- A program that knows only the first schema works on: it writes none of this. When it prunes or deletes a
-- job, the job's notes stay behind; nobody finds them, because a seq is never used twice.

create table forebay_notes (
  seq integer not null,
  kind text not null check (kind = 'progress' or kind = 'line' or kind = 'step'),
  -- The order among notes of one kind; the one progress has 0.
  number integer not null,
  -- Steps have one.
  name text,
  attempt integer not null,
  at integer not null,
  -- JSON of a progress or a line; the result of a step as it was given.
  body any not null,
  -- All notes of a job stand together, in order: they are read and removed by one range.
  primary key (seq, kind, number)
) strict, without rowid;

create unique index forebay_notes_step on forebay_notes (seq, name) where kind = 'step';

create table forebay_commands (
  number integer primary key,
  id text not null,
  worker text not null,
  kind text not null,
  queue text,
  actor text not null,
  sent_at integer not null,
  expires_at integer not null,
  taken_at integer,
  answer text
) strict;

create unique index forebay_commands_id on forebay_commands (id);
-- Every worker looks here once a second, and it is nearly always empty.
create index forebay_commands_waiting on forebay_commands (worker) where taken_at is null;

-- What else a worker says, as JSON: who reads it takes what it knows and defaults for the rest.
alter table forebay_workers add column said text not null default '{}';
