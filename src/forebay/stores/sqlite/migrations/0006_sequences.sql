-- oldest: 6
-- Sequences. An older program would end a job without a word to the next one of its sequence.

-- The live jobs of each sequence. The one with the lowest number may run, the others are blocked.
create table forebay_sequences (
  name text not null,
  number integer not null,
  id text not null,
  primary key (name, number)
) strict, without rowid;

create index forebay_sequences_id on forebay_sequences (id);
