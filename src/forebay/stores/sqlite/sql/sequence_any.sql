-- sequence_any: whether a sequence has a live job.
select exists (select 1 from forebay_sequences where name = :name);
