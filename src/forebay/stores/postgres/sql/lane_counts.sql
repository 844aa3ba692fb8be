-- lane_counts: how many jobs wait behind each gate.
select queue, lane, count(*)
from forebay.side_lanes
group by queue, lane
order by queue, lane;
