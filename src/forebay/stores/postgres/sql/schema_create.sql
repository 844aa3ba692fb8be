-- schema_create: create the record of migrations. `oldest` is the fewest steps a program must know to work here.
create table if not exists forebay.schema (
  number integer primary key,
  name text not null,
  oldest integer not null,
  applied_at bigint not null
);
