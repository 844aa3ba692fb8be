-- scan_mark_save: mark a number that was given out before this statement. Whoever has a lower one is under way by
-- now, but for the moment between drawing the number and writing it down; a floor is kept some numbers below.
insert into forebay.maintenance (name, due_at, scan_position)
values (%(name)s, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, %(scan_position)s)
on conflict (name) do update
set due_at = excluded.due_at,
    scan_position = excluded.scan_position;
