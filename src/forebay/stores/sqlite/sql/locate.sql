-- locate: seq and state of a job by its id, whatever table it is in. A generated id contains its seq (:seq);
-- an id that a caller brought is looked up.
-- Index: the rowid and the id index of each table.
select seq, state from forebay_all_jobs where seq = :seq and id = :job_id
union all
select seq, state from forebay_all_jobs where has_custom_id = 1 and id = :job_id
limit 1;
