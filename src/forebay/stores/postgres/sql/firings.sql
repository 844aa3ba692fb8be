-- firings: what became of the runs of a schedule, newest first.
-- Relies on index firings_of (name, number).
select at, status, recorded_at, job_id, reason, until_at, count
from forebay.firings
where name = %(name)s
order by number desc
limit %(limit)s;
