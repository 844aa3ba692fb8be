-- count: what this transaction has changed, by queue and state.
insert into forebay.queue_count_deltas (queue, state, jobs)
select * from unnest(%(queues)b::text[], %(states)b::text[], %(jobs)b::bigint[]);
