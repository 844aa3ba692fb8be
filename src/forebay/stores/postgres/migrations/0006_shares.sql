-- oldest: 5
-- Shares that have jobs waiting, and where their turns are. A program that knows only the schemas before does not see
-- jobs with a share: none should be enqueued before all workers are of this age.

-- A row without a turn says that jobs of a share have come. Whoever inserts adds one and waits for nobody; the next claim
-- of the queue takes these away, and gives a share that has none its turn. Only who holds the lock of the queue's shares
-- changes a row that has one.
create table forebay.shares (
  queue text collate "C" not null,
  share text collate "C" not null,
  turn bigint
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index shares_turn on forebay.shares (queue, turn, share);
create index shares_share on forebay.shares (queue, share);
