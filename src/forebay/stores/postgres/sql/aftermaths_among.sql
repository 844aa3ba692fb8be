-- aftermaths_among: what the list still has to do about jobs, oldest first, and how far it has come. Relies on index
-- aftermaths_parent.
select number, parent, after_child, after_number
from forebay.aftermaths
where parent = any(%(parents)b::text[])
order by number;
