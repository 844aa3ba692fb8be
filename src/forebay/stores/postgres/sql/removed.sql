-- removed: how many jobs of each queue are gone.
select queue, jobs from forebay.removed;
