-- notes: all that is kept of a job's notes, each kind in its order.
select kind, number, name, attempt, at, body
from forebay.notes
where job_id = %(job_id)s
order by kind, number;
