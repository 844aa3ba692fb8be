-- sequence_is_blocked: whether an earlier job of its sequence blocks a job.
select exists (
  select 1
  from forebay_sequences s
  where s.job_id = :job_id and exists (select 1 from forebay_sequences f where f.name = s.name and f.position < s.position)
);
