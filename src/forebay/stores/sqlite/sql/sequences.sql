-- name: sequence_any: whether a sequence has a live job.
select exists (select 1 from forebay_sequences where name = :name);

-- name: sequence_current: first job of a sequence.
select job_id from forebay_sequences where name = :name order by position limit 1;

-- name: sequence_first: first job of a sequence, if it comes after this position.
select job_id
from (select position, job_id from forebay_sequences where name = :name order by position limit 1)
where position > :position;

-- name: sequence_is_blocked: whether an earlier job of its sequence blocks a job.
select exists (
  select 1
  from forebay_sequences s
  where s.job_id = :job_id and exists (select 1 from forebay_sequences f where f.name = s.name and f.position < s.position)
);

-- name: sequence_join: add a job at the end of its sequence; one that is still in it keeps its position.
insert into forebay_sequences (name, position, job_id)
select :name, coalesce((select max(position) from forebay_sequences where name = :name), 0) + 1, :job_id
where not exists (select 1 from forebay_sequences where job_id = :job_id and name = :name);

-- name: sequence_leave: remove a job from its sequence.
delete from forebay_sequences where name = :name and position = :position;

-- name: sequences_of: positions of jobs in their sequences. Index: forebay_sequences_job.
select job_id, name, position from forebay_sequences where job_id in (select value from json_each(:ids)) order by name, position;
