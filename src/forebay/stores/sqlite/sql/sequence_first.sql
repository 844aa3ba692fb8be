-- sequence_first: the first job of a sequence, if it has come after this number.
select id
from (select number, id from forebay_sequences where name = :name order by number limit 1)
where number > :number;
