-- name: schema_add: record a migration, in the same transaction as the migration itself.
insert into forebay.schema (number, name, oldest, applied_at)
values (%(number)s, %(name)s, %(min_program)s, forebay.now_ms());

-- name: schema_create: create the record of migrations. `oldest` is the fewest steps a program must know to work here.
create table if not exists forebay.schema (
  number integer primary key,
  name text not null,
  oldest integer not null,
  applied_at bigint not null
);

-- name: schema_exists: whether this database has the tables of this store.
-- Guarantees: it reads the catalogue. to_regclass may answer from the cache of the session, and miss tables that
-- another program committed while this one waited for the lock of the migration.
select exists (
  select 1
  from pg_catalog.pg_tables
  where array[schemaname::text, tablename::text] = parse_ident('forebay.schema')
);

-- name: schema_lock: make programs that start at once migrate one after the other.
select pg_advisory_xact_lock(hashtext('forebay.schema'));

-- name: schema_timeouts: lift the timeouts for a migration; only some servers limit a whole transaction.
select set_config(patience.name, patience.value, true)
from (values ('lock_timeout', '60s'), ('statement_timeout', '0'), ('transaction_timeout', '0'))
  as patience(name, value)
where exists (select from pg_settings as known where known.name = patience.name);

-- name: settings: settings of these queues, and then without a name those of all queues, dropped ones too; identical
-- ones once.
-- Index: primary key.
select name, settings from forebay.queues where name = any(%(names)b::text[])
union all
select distinct null::text, settings from forebay.queues;

-- name: options: options of a live job as stored; a newer program may have added more than this one knows.
select options from forebay.jobs where id = %(id)s;

-- name: options_of: options of running jobs as stored.
-- Guarantees: current, since the caller has locked the leases, and `update_running` locks them before it writes.
-- Index: primary key.
select id, options from forebay.jobs where id = any(%(ids)b::text[]);

-- name: sessions_end: end the other sessions of this store that this user may end. Programs connect again and check the
-- schema then. It waits up to a second for each, so they have ended when this answers.
select count(pg_terminate_backend(pid, 1000))
from pg_stat_activity
where datname = current_database()
  and usename = current_user
  and application_name = %(name)s
  and pid <> pg_backend_pid();

-- name: notify: wake listeners with the commit.
select pg_notify(%(channel)s, '');

-- name: now: the store's clock, read once in a transaction, so that all its parts agree about the time.
-- `forebay_tx.now` keeps it until the transaction ends, for statements that are sent before its value has arrived.
select set_config('forebay_tx.now', forebay.now_ms()::text, true)::bigint;

-- name: snapshot: the MVCC snapshot just before a query, and the own transaction. It is sent right before `candidates`:
-- a row that arrives between the two is read twice, and none is missed.
select pg_current_snapshot()::text, pg_current_xact_id_if_assigned()::text;

-- name: shorten_lock_timeout: wait only briefly for a lock, until `restore_lock_timeout` or the end of the transaction.
-- 10 ms are enough for the commit of another enqueue, and a caller transaction that has more keys than locks is left
-- alone.
select set_config('forebay_tx.lock_timeout', current_setting('lock_timeout'), true),
  set_config('lock_timeout', '10ms', true);

-- name: restore_lock_timeout: restore the lock timeout from before `shorten_lock_timeout`.
select set_config('lock_timeout', current_setting('forebay_tx.lock_timeout'), true);
