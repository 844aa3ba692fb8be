-- outbox_add: add outbox entries in the order given.
insert into forebay.dependency_outbox (job_id, event)
select n.job_id, n.event
from unnest(%(job_ids)b::text[], %(events)b::text[]) with ordinality as n (job_id, event, position)
order by n.position
returning id;
