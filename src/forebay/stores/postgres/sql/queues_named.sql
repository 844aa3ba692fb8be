-- queues_named: these queues.
select name, state, settings, rank_version, reordered_to, created_at, updated_at
from forebay.queues
where name = any(%(names)b::text[]);
