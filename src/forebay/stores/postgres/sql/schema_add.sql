-- schema_add: record a migration, in the same transaction as the migration itself.
insert into forebay.schema (number, name, oldest, applied_at)
values (%(number)s, %(name)s, %(min_program)s, forebay.now_ms());
