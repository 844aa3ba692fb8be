-- oldest: 10
-- A parent that completes lowers the number of edges that block its child, and leaves the edge as it is: an open one is met
-- if its parent has completed, or had and is gone since, and the list has nothing to do for it any more. An older program
-- would wait for edges that nobody writes. It is refused when it opens the store, and not if it has done so already: every
-- program has to be stopped before this step.

-- This waits for all who are adding edges, so that none comes in the old way after it. 'unsure': an open edge of a job that
-- came in a transaction of its caller's, and nobody has looked at the parent yet. Old rows have none, and need no look.
alter table forebay.edges drop constraint edges_state_check;
alter table forebay.edges add constraint edges_state_check
  check (state in ('open', 'met', 'held', 'failed', 'unsure')) not valid;

-- Few edges are written a second time now.
alter table forebay.edges reset (fillfactor);

update forebay.edges
set state = 'unsure'
where state = 'open' and child in (select parent from forebay.aftermaths where aftermath = 'check');

-- The last edge that was looked at, where a job that has completed has more of them than one transaction takes.
alter table forebay.aftermaths add column after_child text collate "C" not null default '';
alter table forebay.aftermaths add column after_number integer not null default 0;
