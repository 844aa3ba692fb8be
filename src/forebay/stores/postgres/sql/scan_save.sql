-- scan_save: store how far a maintenance task has come.
insert into forebay.maintenance (name, due_at, scan_position)
values (%(name)s, 0, %(scan_position)s)
on conflict (name) do update
set scan_position = excluded.scan_position;
