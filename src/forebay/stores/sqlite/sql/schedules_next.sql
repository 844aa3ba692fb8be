-- schedules_next: when the next schedule is worth a look.
-- Relies on index forebay_schedules_due (due_at, name).
select check_at
from forebay_schedules
where check_at > :now
order by check_at
limit 1;
