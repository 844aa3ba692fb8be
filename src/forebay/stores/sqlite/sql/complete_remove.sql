-- complete_remove: take jobs that were just copied to the finished ones out of the live ones.
delete from forebay_jobs
where seq in (select value from json_each(:seqs));
