-- acquire_maintenance: give a maintenance task to the caller; no row means that it is not due.
-- A transaction by itself, since idle workers ask all the time.
-- Guarantees: of two callers at once the second waits for the first and then finds the new time in the future.
-- A time further ahead than the interval of the task was written before the clock was set back, and counts as due.
insert into forebay.maintenance as d (name, due_at)
values (%(name)s::text, forebay.now_ms() + %(every_ms)s::bigint)
on conflict (name) do update
set due_at = excluded.due_at
where d.due_at <= forebay.now_ms()
   or d.due_at > forebay.now_ms() + %(every_ms)s
returning 1::bigint;
