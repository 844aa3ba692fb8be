-- schema_number: number of the schema, the oldest program that it supports, and the name of its first
-- migration, which tells a store from before the baseline.
select coalesce(max(number), 0), coalesce(max(oldest), 0), max(name) filter (where number = 1) from forebay_schema;
