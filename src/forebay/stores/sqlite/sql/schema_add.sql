-- schema_add: record an applied migration, in its own transaction.
insert into forebay_schema (number, name, oldest, applied_at) values (:number, :name, :min_program, :now);
