-- sequence_current: first job of a sequence.
select job_id from forebay_sequences where name = :name order by position limit 1;
