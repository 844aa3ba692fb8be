-- reordering: queues whose change of scoring is not carried out yet, and that nobody else is at.
select name, state, settings, rank_version, reordered_to, created_at, updated_at
from forebay.queues
where reordered_to is not null
order by name
for update skip locked;
