-- active_writers: whether other transactions write to `jobs`, the oldest running transaction, and the next one to come.
-- Guarantees: a transaction that gives a new job its rank is listed from before it reads the settings of the queue
-- until it ends. A statement has its locks before it reads; `next_seqs` takes them for transactions of several
-- statements.
select
  exists (
    select
    from pg_locks
    where locktype = 'relation' and relation = 'forebay.jobs'::regclass and mode = 'RowExclusiveLock'
      and database = (select oid from pg_database where datname = current_database())
      and pid is distinct from pg_backend_pid()
  ),
  pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
  pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
