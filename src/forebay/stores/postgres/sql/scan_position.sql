-- scan_position: how far a maintenance task that scans the jobs by seq has come.
select coalesce((select scan_position from forebay.maintenance where name = %(name)s), 0);
