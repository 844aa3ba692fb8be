-- schedules_next: when the next schedule is worth a look.
-- Relies on index schedules_due (due_at, name).
select due_at
from forebay.schedules
where due_at > %(now)s
order by due_at
limit 1;
