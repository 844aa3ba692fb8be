-- schema_exists: whether this database has the tables of this store.
-- Guarantees: it reads the catalogue. to_regclass may answer from the cache of the session, and miss tables that
-- another program committed while this one waited for the lock of the migration.
select exists (
  select 1
  from pg_catalog.pg_tables
  where array[schemaname::text, tablename::text] = parse_ident('forebay.schema')
);
