-- scan_position: how far a duty that goes through the jobs by seq has come.
select coalesce((select scan_position from forebay_maintenance where name = :name), 0);
