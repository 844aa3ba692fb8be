-- schedules_next: when the next schedule is worth a look.
-- Relies on index schedules_due (due_at, name).
select check_at
from forebay.schedules
where check_at > %(now)s
order by check_at
limit 1;
