-- complete_remove: remove jobs from the live ones that were just copied to the finished ones. No job is ever
-- in both tables, so those that are have just been copied.
delete from forebay_jobs
where seq in (select value from json_each(:seqs))
  and exists (select 1 from forebay_finished as copy where copy.seq = forebay_jobs.seq)
returning seq, queue, unique_key;
