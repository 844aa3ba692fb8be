-- clock_record: record a reading of the clock in its slot.
insert into forebay_maintenance (name, due_at)
values (:name, :now)
on conflict (name) do update
set due_at = excluded.due_at;
