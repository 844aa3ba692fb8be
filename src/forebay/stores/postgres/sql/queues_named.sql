-- queues_named: these queues, and whether a limit holds for them, or jobs wait behind the gate of one.
select name, state, settings, rank_version, reordered_to, created_at, updated_at,
  exists (select 1 from forebay.limits where scope = 'queue:' || name or scope not like 'queue:%%')
    or exists (select 1 from forebay.closed where queue = name)
from forebay.queues
where name = any(%(names)b::text[]);
