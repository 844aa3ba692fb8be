-- low_water_marks: from where on duties look, and until when that is enough.
select name, scan_position, due_at from forebay.maintenance where name = any(%(names)b::text[]);
