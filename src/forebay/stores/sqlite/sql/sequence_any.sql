-- sequence_any: whether any job of a sequence lives.
select exists (select 1 from forebay_sequences where name = :name);
