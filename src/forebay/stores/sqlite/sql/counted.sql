-- counted: up to which seq the counters know all jobs.
select coalesce((select jobs from forebay_counts where queue = '' and state = 'counted'), 0);
