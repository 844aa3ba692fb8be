-- unmet_decrement: decrement the number of edges that block these jobs.
update forebay_jobs
set unmet = unmet - :met
where seq in (select value from json_each(:seqs)) and state = 'blocked';
