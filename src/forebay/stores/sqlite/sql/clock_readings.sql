-- clock_readings: recorded readings of the clock, by slot.
-- Index: primary key of forebay_maintenance, one probe for each slot.
select name, due_at
from forebay_maintenance
where name in (select value from json_each(:names));
