-- import_reserve_ids: reserve ids until the transaction ends; answers those that no live job has.
-- Guarantees: an insert or import of one of them waits for this transaction and then finds its job. An earlier one is
-- waited for, and then its id is not among the answers.
insert into forebay.jobs (id, seq, queue, task, priority, created_at, updated_at, ready_at, run_at, rank, payload)
select n.id, n.seq, '', '', 0, 0, 0, 0, 0, 0, ''
from unnest(%(ids)b::text[], %(seqs)b::bigint[]) as n (id, seq)
order by n.id
on conflict (id) do nothing
returning id;
