-- scan_save: save the position of a scan.
insert into forebay_maintenance (name, due_at, scan_position)
values (:name, 0, :scan_position)
on conflict (name) do update
set scan_position = excluded.scan_position;
