-- rescoring_queues: queues whose change of scoring is not carried out yet.
-- Locks: SKIP LOCKED, so two transactions do not rescore one queue.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
where rescored_to_seq is not null
order by name
for update skip locked;
