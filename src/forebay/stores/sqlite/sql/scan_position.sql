-- scan_position: position of a maintenance task that scans the jobs by seq.
select coalesce((select scan_position from forebay_maintenance where name = :name), 0);
