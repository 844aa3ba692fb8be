-- queues: all of them, dropped ones too.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
order by name;
