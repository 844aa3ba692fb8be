-- removed_counts_add: so many jobs of a queue more are gone.
insert into forebay_removed_counts (queue, jobs)
values (:queue, :jobs)
on conflict (queue) do update
set jobs = jobs + excluded.jobs;
