-- sequence_join: add a job at the end of its sequence; one that is still in it keeps its position.
insert into forebay_sequences (name, position, job_id)
select :name, coalesce((select max(position) from forebay_sequences where name = :name), 0) + 1, :job_id
where not exists (select 1 from forebay_sequences where job_id = :job_id and name = :name);
