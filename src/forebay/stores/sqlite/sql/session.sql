-- name: schema_add: record an applied migration, in its own transaction.
insert into forebay_schema (number, name, oldest, applied_at) values (:number, :name, :min_program, :now);

-- name: schema_create: create the record of migrations. `oldest` is the fewest steps that a program must know to
-- work here.
create table if not exists forebay_schema (
  number integer primary key,
  name text not null,
  oldest integer not null,
  applied_at integer not null
) strict;

-- name: schema_exists: whether this file has ever had a schema of Forebay.
select 1 from sqlite_master where type = 'table' and name = 'forebay_schema';

-- name: schema_newest: number of the last migration.
-- Index: primary key, its last entry. Cost: runs after each commit of another connection, so it has to be
-- cheap.
select number from forebay_schema order by number desc limit 1;
