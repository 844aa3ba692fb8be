-- acquire_maintenance: one row changed means the duty is the caller's. The write lock makes it one caller's only.
-- A time that lies further ahead than the duty's own pace was written before the clock was set back.
insert into forebay_maintenance (name, due_at)
values (:name, :now + :every_ms)
on conflict (name) do update
set due_at = excluded.due_at
where forebay_maintenance.due_at <= :now
   or forebay_maintenance.due_at > :now + :every_ms;
