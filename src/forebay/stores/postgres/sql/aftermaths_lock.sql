-- aftermaths_lock: the same, held. Who works on such a line has done so when this answers, and what it has left is as it
-- will stay: others pass by lines that are held. Relies on index aftermaths_parent.
select number, parent, after_child, after_number
from forebay.aftermaths
where parent = any(%(parents)b::text[])
order by number
for update;
