-- count: add to the counter of one queue and state; :jobs may be negative.
insert into forebay_queue_counts (queue, state, jobs)
values (:queue, :state, :jobs)
on conflict (queue, state) do update
set jobs = jobs + excluded.jobs;
