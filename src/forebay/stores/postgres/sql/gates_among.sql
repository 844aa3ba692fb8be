-- gates_among: behind which of these gates of a queue jobs wait, by one probe for each.
select w.gate
from unnest(%(gates)b::text[]) as w (gate)
where exists (select 1 from forebay.gated g where g.queue = %(queue)s and g.gate = w.gate offset 0)
order by w.gate;
