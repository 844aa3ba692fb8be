-- oldest: 11
-- Shares with jobs behind the limit of a scope: one lane for each, its turn there, and the turn of its share in the queue.
-- An older program would not look into lanes, and so leave jobs there.
create table forebay_lanes (
  queue text not null,
  scope text not null,
  share text not null,
  turn integer not null,
  resume integer not null,
  primary key (queue, scope, share)
) strict, without rowid;

create index forebay_lanes_turn on forebay_lanes (queue, scope, turn, share);
create index forebay_lanes_share on forebay_lanes (queue, share);
