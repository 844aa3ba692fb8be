-- scan_mark_save: store an id that was given out before this statement. A transaction with a lower id is running by
-- now, except between drawing the id and writing it. So a low-water mark stays some ids below.
insert into forebay.maintenance (name, due_at, scan_position)
values (%(name)s, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, %(scan_position)s)
on conflict (name) do update
set due_at = excluded.due_at,
    scan_position = excluded.scan_position;
