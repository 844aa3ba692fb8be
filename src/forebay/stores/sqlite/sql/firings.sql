-- firings: what became of the runs of a schedule, newest first.
-- Relies on index forebay_firings_of (name, number).
select at, status, recorded_at, job_id, reason, until_at, count
from forebay_firings
where name = :name
order by number desc
limit :limit;
