-- import_reserve_ids: nobody else brings these ids before the transaction ends; those that are not live, which are ours now.
-- Guarantees: whoever inserts or takes in one of them waits for us, and then finds what we have made of it; whoever was
-- first is waited for, and then that id is not among the answers.
insert into forebay.jobs (id, seq, queue, task, priority, created_at, updated_at, ready_at, run_at, rank, payload)
select n.id, n.seq, '', '', 0, 0, 0, 0, 0, 0, ''
from unnest(%(ids)b::text[], %(seqs)b::bigint[]) as n (id, seq)
order by n.id
on conflict (id) do nothing
returning id;
