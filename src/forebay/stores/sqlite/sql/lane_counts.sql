-- lane_counts: how many jobs wait behind each gate.
select queue, lane, count(*)
from forebay_jobs
where state = 'pending' and lane is not null
group by queue, lane
order by queue, lane;
