-- queues_named: these queues, and whether a limit holds for them.
select name, state, settings, rank_version, reordered_to, created_at, updated_at,
  exists (select 1 from forebay.limits where scope in ('global', 'queue:' || name))
from forebay.queues
where name = any(%(names)b::text[]);
