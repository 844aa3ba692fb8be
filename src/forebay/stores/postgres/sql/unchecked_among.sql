-- unchecked_among: those of these jobs from which unchecked edges lead.
-- Index: dependencies_parent; one probe per job, see `delayed_take_due`.
select p.parent_id
from unnest(%(parent_ids)b::text[]) as p (parent_id)
where exists (select 1 from forebay.dependencies where parent_id = p.parent_id and state = 'unchecked' offset 0);
