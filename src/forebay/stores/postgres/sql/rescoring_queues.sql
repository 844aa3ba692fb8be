-- rescoring_queues: queues whose change of scoring is not carried out yet, and that nobody else is at.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
where rescored_to_seq is not null
order by name
for update skip locked;
