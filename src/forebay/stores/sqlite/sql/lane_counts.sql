-- lane_counts: number of jobs in each lane.
select queue, lane, count(*)
from forebay_jobs
where state = 'pending' and lane is not null
group by queue, lane
order by queue, lane;
