-- queues_named: these queues, and whether a limit holds for them, or jobs wait behind the gate of one; and whether they
-- have shares.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at,
  exists (select 1 from forebay.limits where scope = 'queue:' || name or scope not like 'queue:%%')
    or exists (select 1 from forebay.limit_lanes where queue = name),
  exists (select 1 from forebay.fairness_keys where queue = name)
from forebay.queues
where name = any(%(names)b::text[]);
