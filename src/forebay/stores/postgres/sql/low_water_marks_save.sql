-- low_water_marks_save: store the positions from which the next scans start.
-- Locks: by name, against deadlocks.
insert into forebay.maintenance (name, due_at, scan_position)
select name, full_scan_at, scan_position
from unnest(%(names)b::text[], %(full_scan_at)b::bigint[], %(scan_positions)b::bigint[])
  as f (name, full_scan_at, scan_position)
on conflict (name) do update
set due_at = excluded.due_at,
    scan_position = excluded.scan_position;
