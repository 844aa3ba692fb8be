-- progress_remove: the notes of jobs that are forgotten (:seqs is a JSON array) go with them.
delete from forebay_job_progress where seq in (select value from json_each(:seqs));
