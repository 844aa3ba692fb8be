-- counted_seq_save: record that the counters include all jobs up to this seq.
insert into forebay_queue_counts (queue, state, jobs)
values ('', 'counted', :counted)
on conflict (queue, state) do update
set jobs = excluded.jobs;
