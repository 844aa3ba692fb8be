-- low_water_marks: scan positions from which maintenance tasks start, and until when that is enough.
select name, scan_position, due_at from forebay.maintenance where name = any(%(names)b::text[]);
