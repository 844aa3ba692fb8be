-- schedules_next: time of the next check of a schedule.
-- Index: forebay_schedules_check (check_at, name).
select check_at
from forebay_schedules
where check_at > :now
order by check_at
limit 1;
