-- schema_add: one migration was applied; in the same transaction as the migration itself.
insert into forebay_schema (number, name, oldest, applied_at) values (:number, :name, :min_program, :now);
