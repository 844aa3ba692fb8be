-- queue_lock: one queue, for whoever changes it or counts its jobs exactly.
select name, state, settings, rank_version, reordered_to, created_at, updated_at
from forebay.queues
where name = %(name)s
for update;
