-- scan_position: how far a duty that goes through the jobs by seq has come.
select coalesce((select scan_position from forebay.maintenance where name = %(name)s), 0);
