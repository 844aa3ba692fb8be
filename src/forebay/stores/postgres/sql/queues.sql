-- queues: all queues, dropped ones too.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
order by name;
