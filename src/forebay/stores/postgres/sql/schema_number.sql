-- schema_number: the number of the schema, the fewest steps a program must know, and the name of step 1, which marks a
-- store from before the baseline.
select coalesce(max(number), 0)::bigint, coalesce(max(oldest), 0)::bigint, max(name) filter (where number = 1)
from forebay.schema;
