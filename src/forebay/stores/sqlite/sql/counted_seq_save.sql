-- counted_seq_save: from now on the counters know all jobs up to this seq.
insert into forebay_queue_counts (queue, state, jobs)
values ('', 'counted', :counted)
on conflict (queue, state) do update
set jobs = excluded.jobs;
