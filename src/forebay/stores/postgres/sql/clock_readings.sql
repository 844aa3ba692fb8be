-- clock_readings: recorded readings of the clock, by slot.
-- Index: primary key of `maintenance`, one probe for each slot.
select name, due_at
from forebay.maintenance
where name = any(%(names)b::text[]);
