-- queues_named: queues by name, whether a limit applies or limit lanes have jobs, and whether they have fairness keys.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at,
  exists (select 1 from forebay.limits where scope = 'queue:' || name or scope not like 'queue:%%')
    or exists (select 1 from forebay.limit_lanes where queue = name),
  exists (select 1 from forebay.fairness_keys where queue = name)
from forebay.queues
where name = any(%(names)b::text[]);
