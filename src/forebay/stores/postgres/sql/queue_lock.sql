-- queue_lock: lock one queue, to change it or to count its jobs exactly.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay.queues
where name = %(name)s
for update;
