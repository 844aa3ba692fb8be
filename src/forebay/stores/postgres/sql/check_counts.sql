-- check_counts: count the jobs as they are, to compare them with the counters.
select queue, state, count(*) from forebay.all_jobs group by queue, state;
