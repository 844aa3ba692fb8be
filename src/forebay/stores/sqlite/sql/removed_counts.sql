-- removed_counts: how many jobs of each queue are gone.
select queue, jobs from forebay_removed_counts;
