-- acquire_maintenance: acquire a maintenance task; one changed row means that the caller has it. The write
-- lock admits one caller.
-- A due time further ahead than `every_ms` was written before the clock was set back.
insert into forebay_maintenance (name, due_at)
values (:name, :now + :every_ms)
on conflict (name) do update
set due_at = excluded.due_at
where forebay_maintenance.due_at <= :now
   or forebay_maintenance.due_at > :now + :every_ms;
