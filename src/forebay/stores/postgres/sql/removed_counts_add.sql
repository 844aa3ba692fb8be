-- removed_counts_add: count removed jobs of each queue. Only maintenance and operators remove jobs, in short
-- transactions, so this counter row blocks no insert and no worker.
-- Locks: by queue, against deadlocks.
insert into forebay.removed_counts as r (queue, jobs)
select *
from unnest(%(queues)b::text[], %(jobs)b::bigint[]) as n (queue, jobs)
order by queue collate "C"
on conflict (queue) do update
set jobs = r.jobs + excluded.jobs;
