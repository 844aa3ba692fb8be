-- name: check_counts: count the jobs as they are, to compare them with the counters.
select queue, state, count(*) from forebay.all_jobs group by queue, state;

-- name: schema_number: number of the schema, the fewest steps that a program must know, and the name of step 1, which
-- marks a store from before the baseline.
select coalesce(max(number), 0)::bigint, coalesce(max(oldest), 0)::bigint, max(name) filter (where number = 1)
from forebay.schema;

-- name: scan_position: position of a maintenance task that scans the jobs by seq.
select coalesce((select scan_position from forebay.maintenance where name = :name), 0);

-- name: scan_save: save the position of a scan.
insert into forebay.maintenance (name, due_at, scan_position)
values (:name, 0, :scan_position)
on conflict (name) do update
set scan_position = excluded.scan_position;

-- name: clock_record: record a reading of the clock in its slot.
-- Locks: the row of the slot, until the transaction ends; nothing else is locked after it.
insert into forebay.maintenance (name, due_at)
values (:name::text, :now::bigint)
on conflict (name) do update
set due_at = excluded.due_at;
