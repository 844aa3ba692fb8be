-- unsure_among: from which of these jobs edges lead of which nobody knows yet whether they are met. Each job is looked up by itself,
-- for the reason that `due` gives.
select p.parent
from unnest(%(parents)b::text[]) as p (parent)
where exists (select 1 from forebay.edges where parent = p.parent and state = 'unsure' offset 0);
