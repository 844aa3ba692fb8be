-- clock_record: record a reading of the clock in its slot.
-- Locks: the row of the slot, until the transaction ends; nothing else is locked after it.
insert into forebay.maintenance (name, due_at)
values (%(name)s::text, %(now)s::bigint)
on conflict (name) do update
set due_at = excluded.due_at;
