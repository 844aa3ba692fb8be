-- floors_save: from where on the next looks of duties begin, in the order of their names.
insert into forebay.duties (name, due_at, walked_to)
select name, whole_at, low
from unnest(%(names)b::text[], %(whole_at)b::bigint[], %(lows)b::bigint[]) as f (name, whole_at, low)
on conflict (name) do update
set due_at = excluded.due_at,
    walked_to = excluded.walked_to;
