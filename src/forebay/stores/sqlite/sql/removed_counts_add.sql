-- removed_counts_add: count more removed jobs of a queue.
insert into forebay_removed_counts (queue, jobs)
values (:queue, :jobs)
on conflict (queue) do update
set jobs = jobs + excluded.jobs;
