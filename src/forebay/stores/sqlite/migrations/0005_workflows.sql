-- oldest: 5
-- Jobs that depend on others. An older program would end jobs without a word to those that wait for them.
-- An edge goes with its child; the one to a parent that is gone stays as it was.

create table forebay_edges (
  child text not null,
  -- Its place among the parents that the child named.
  number integer not null,
  parent text not null,
  on_failure text not null check (on_failure in ('cancel', 'fail', 'ignore', 'hold')),
  state text not null check (state in ('open', 'met', 'held', 'failed')),
  primary key (child, number)
) strict, without rowid;

-- What depends on a job: all of it, and what its end concerns.
create index forebay_edges_parent on forebay_edges (parent, state, child, number);
-- Whether a child is blocked still, however many of its edges are met.
create index forebay_edges_unmet on forebay_edges (child) where state = 'open' or state = 'held';

-- The list: jobs that others depend on and that have ended, or were revived, and what that means is not done yet.
create table forebay_aftermaths (
  number integer primary key,
  parent text not null,
  aftermath text not null
) strict;

-- Blocked jobs of a queue, for when it is dropped.
create index forebay_jobs_blocked on forebay_jobs (queue, run_at) where state = 'blocked';
