-- schedules_next: when the next schedule is worth a look.
-- Relies on index forebay_schedules_due (due_at, name).
select due_at
from forebay_schedules
where due_at > :now
order by due_at
limit 1;
