-- schedules_next: the time at which the next schedule is to be checked.
-- Index: schedules_check (check_at, name).
select check_at
from forebay.schedules
where check_at > %(now)s
order by check_at
limit 1;
