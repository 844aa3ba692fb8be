-- counts: the maintained counters, all queues.
select queue, state, jobs from forebay_counts order by queue, state;
