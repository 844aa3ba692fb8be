-- search_reached: when the job at which a look has ended was created.
select created_at from forebay.job_index where seq = %(seq)s limit 1;
