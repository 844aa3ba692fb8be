-- oldest: 6
-- Shares that have jobs waiting, and where their turns are. A program that knows only the schemas before does not
-- see jobs with a share: none should be enqueued before all workers are of this age.

create table forebay_shares (
  queue text not null,
  share text not null,
  turn integer not null,
  primary key (queue, share)
) strict, without rowid;

create index forebay_shares_turn on forebay_shares (queue, turn, share);
