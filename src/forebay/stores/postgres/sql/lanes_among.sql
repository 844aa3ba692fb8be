-- lanes_among: those of these lanes of a queue that have jobs, by one probe for each.
select w.lane
from unnest(%(lanes)b::text[]) as w (lane)
where exists (select 1 from forebay.side_lanes g where g.queue = %(queue)s and g.lane = w.lane offset 0)
order by w.lane;
