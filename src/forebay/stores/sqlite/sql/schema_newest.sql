-- schema_newest: number of the last migration.
-- Index: primary key, its last entry. Cost: runs after each commit of another connection, so it has to be
-- cheap.
select number from forebay_schema order by number desc limit 1;
