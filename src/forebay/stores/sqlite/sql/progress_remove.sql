-- progress_remove: remove the progress of removed jobs (:seqs is a JSON array).
delete from forebay_job_progress where seq in (select value from json_each(:seqs));
