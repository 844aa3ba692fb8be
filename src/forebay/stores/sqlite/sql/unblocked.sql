-- unblocked: those among jobs that are blocked, but by no edge any more and by no job before them in their sequence;
-- :children is an object with the id of each by the seq in it.
select job.seq, job.id, queue, priority, failures, deadline_at, run_at, options
from json_each(:children) as one cross join forebay_jobs as job
where job.seq = one.key
  and job.id = one.value
  and job.state = 'blocked'
  and not exists (
    select 1
    from forebay_edges as edge indexed by forebay_edges_unmet
    where child = one.value and (edge.state = 'open' or edge.state = 'held')
  )
  and not exists (
    select 1
    from forebay_sequences as own
    where own.id = one.value
      and exists (select 1 from forebay_sequences as f where f.name = own.name and f.number < own.number)
  );
