-- locate: the seq and the state of a job by its id, wherever it is. A generated id contains its seq (:seq);
-- one that a caller brought is looked up. Relies on the rowid and on the id index of each table.
select seq, state from forebay_all_jobs where seq = :seq and id = :job_id
union all
select seq, state from forebay_all_jobs where has_custom_id = 1 and id = :job_id
limit 1;
