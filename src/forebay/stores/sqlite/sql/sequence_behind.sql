-- sequence_behind: whether a job before it in its sequence blocks a job.
select exists (
  select 1
  from forebay_sequences s
  where s.id = :child and exists (select 1 from forebay_sequences f where f.name = s.name and f.number < s.number)
);
