-- queues_named: these queues, and whether a limit holds for them, or jobs wait behind the gate of one; and whether they
-- have shares.
select name, state, settings, rank_version, reordered_to, created_at, updated_at,
  exists (select 1 from forebay.limits where scope = 'queue:' || name or scope not like 'queue:%%')
    or exists (select 1 from forebay.closed where queue = name),
  exists (select 1 from forebay.shares where queue = name)
from forebay.queues
where name = any(%(names)b::text[]);
