-- removed_counts_add: so many jobs of each queue more are gone. Only duties and operators remove jobs, in short transactions,
-- so a counter row holds nobody up who enqueues or works; in the order of the queues, against deadlocks.
insert into forebay.removed_counts as r (queue, jobs)
select *
from unnest(%(queues)b::text[], %(jobs)b::bigint[]) as n (queue, jobs)
order by queue collate "C"
on conflict (queue) do update
set jobs = r.jobs + excluded.jobs;
