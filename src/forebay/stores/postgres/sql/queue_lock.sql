-- queue_lock: one queue, for whoever changes it or counts its jobs exactly.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
where name = %(name)s
for update;
