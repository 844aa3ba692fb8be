-- sequence_first: first job of a sequence, if it comes after this position.
select job_id
from (select position, job_id from forebay_sequences where name = :name order by position limit 1)
where position > :position;
