-- oldest: 5
-- Sequences. An older program would end a job without a word to the next one of its sequence.

-- The live jobs of each sequence. The one with the lowest number may run, the others are blocked. One without a number
-- came in a transaction of its caller's, and gets it from whoever hears of the commit.
-- Whoever changes or counts rows of a sequence holds its lock (`sequences_lock`). All of its jobs are marked as jobs with
-- dependants, so that their ends are put on the list.
create table forebay.sequences (
  name text collate "C" not null,
  number bigint,
  id text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create unique index sequences_order on forebay.sequences (name, number);
create index sequences_id on forebay.sequences (id);
