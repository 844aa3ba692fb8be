-- schema_exists: whether this database has ever held the tables of this store.
-- A query of the catalogue and not to_regclass: that may answer from what the session remembers, and miss what another
-- program has committed while we waited for the lock of the migration.
select exists (
  select 1
  from pg_catalog.pg_tables
  where array[schemaname::text, tablename::text] = parse_ident('forebay.schema')
);
