-- schema_number: how far this schema is, and which programs it still bears.
select coalesce(max(number), 0)::bigint, coalesce(max(oldest), 0)::bigint from forebay.schema;
