-- held_jobs: how many jobs wait behind each gate.
select queue, gate, count(*)
from forebay.gated
group by queue, gate
order by queue, gate;
