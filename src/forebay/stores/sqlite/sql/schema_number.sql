-- schema_number: how far this schema is, which programs it still bears, and the name of its first step, which tells a store
-- from before the baseline.
select coalesce(max(number), 0), coalesce(max(oldest), 0), max(name) filter (where number = 1) from forebay_schema;
