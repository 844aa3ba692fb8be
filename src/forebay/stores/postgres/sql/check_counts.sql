-- check_counts: jobs as they are, to be compared with what the counters say.
select queue, state, count(*) from forebay.all_jobs group by queue, state;
