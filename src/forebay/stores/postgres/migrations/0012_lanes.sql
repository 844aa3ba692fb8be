-- oldest: 12
-- Shares with jobs behind the limit of a scope: one lane for each, its turn there, and the turn of its share in the queue.
-- A transaction changes rows of a queue only under the lock of the queue's shares.
-- An older program would not look into lanes, and so leave jobs there.
create table forebay.lanes (
  queue text collate "C" not null,
  scope text collate "C" not null,
  share text collate "C" not null,
  turn bigint not null,
  resume bigint not null,
  primary key (queue, scope, share)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create index lanes_turn on forebay.lanes (queue, scope, turn, share);
create index lanes_share on forebay.lanes (queue, share);
