-- active_writers: whether others are writing to `jobs`, the oldest transaction that is under way, and the next to come.
-- Guarantees: whoever gives a new job its place is among the others from before it looks at the settings of the queue
-- until it has ended. A statement has its locks before it looks; `seqs` takes them for transactions of several.
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
