-- sequence_join: a job comes last in its sequence; one whose end was not heard of there keeps its place.
insert into forebay_sequences (name, number, id)
select :name, coalesce((select max(number) from forebay_sequences where name = :name), 0) + 1, :job_id
where not exists (select 1 from forebay_sequences where id = :job_id and name = :name);
