-- search_reached: the creation time of the job at which a scan has ended.
select created_at from forebay.job_index where seq = %(seq)s limit 1;
