-- unchecked_among: from which of these jobs edges lead of which nobody knows yet whether they are met. Each job is looked up by itself,
-- for the reason that `due` gives.
select p.parent_id
from unnest(%(parent_ids)b::text[]) as p (parent_id)
where exists (select 1 from forebay.dependencies where parent_id = p.parent_id and state = 'unchecked' offset 0);
