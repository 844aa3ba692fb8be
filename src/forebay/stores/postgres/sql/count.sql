-- count: append the changes of this transaction to the counters, by queue and state.
insert into forebay.queue_count_deltas (queue, state, jobs)
select * from unnest(%(queues)b::text[], %(states)b::text[], %(jobs)b::bigint[]);
