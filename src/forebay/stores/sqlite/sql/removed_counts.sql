-- removed_counts: number of removed jobs of each queue.
select queue, jobs from forebay_removed_counts;
