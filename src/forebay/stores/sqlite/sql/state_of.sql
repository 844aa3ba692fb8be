-- state_of: the state of a job, wherever it is. Relies on the id index of each table.
select state from forebay_all_jobs where id = :id;
