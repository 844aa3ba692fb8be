-- held_jobs: how many jobs wait behind each gate.
select queue, gate, count(*)
from forebay_jobs
where state = 'pending' and gate is not null
group by queue, gate
order by queue, gate;
