-- sequence_turn: the first job of a sequence.
select id from forebay_sequences where name = :name order by number limit 1;
