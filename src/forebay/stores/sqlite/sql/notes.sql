-- notes: all that is kept of a job's notes, each kind in its order.
select kind, number, name, attempt, at, body
from forebay_notes
where seq = :seq
order by kind, number;
