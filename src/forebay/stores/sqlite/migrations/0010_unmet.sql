-- oldest: 10
-- A parent that completes lowers the number of edges that block its child, and leaves the edge as it is: an open one is met
-- if its parent has completed, or had and is gone since, and the list has nothing to do for it any more. An older program
-- would wait for edges that nobody writes.

-- How many of the jobs that a blocked one depends on it still waits for. A column that is added stands last, so whoever reads it
-- comes past the payload.
alter table forebay_jobs add column unmet integer not null default 0;

-- Up to here each edge was written when it was met.
update forebay_jobs
set unmet = (
  select count(*) from forebay_edges as e where e.child = forebay_jobs.id and (e.state = 'open' or e.state = 'held')
)
where state = 'blocked';

drop index forebay_edges_unmet;

-- The last edge that was looked at, where a job that has completed has more of them than one transaction takes.
alter table forebay_aftermaths add column after_child text not null default '';
alter table forebay_aftermaths add column after_number integer not null default 0;
