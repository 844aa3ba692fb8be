-- lane_counts: count the jobs in each side lane.
select queue, lane, count(*)
from forebay.side_lanes
group by queue, lane
order by queue, lane;
