-- check_counts: actual jobs by queue and state, to compare with the counters.
select queue, state, count(*) from forebay_all_jobs group by queue, state;
