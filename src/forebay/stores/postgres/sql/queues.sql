-- queues: all of them, dropped ones too.
select name, state, settings, rank_version, reordered_to, created_at, updated_at
from forebay.queues
order by name;
