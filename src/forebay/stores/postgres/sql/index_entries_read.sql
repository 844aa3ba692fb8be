-- index_entries_read: entries of the indexes of maintenance tasks that this session has read so far. The difference of
-- two answers in one transaction is the cost of the scan between them, dead entries included.
select name, sum(pg_stat_get_xact_tuples_returned(index::oid))::bigint
from (
  values
    ('expired', 'forebay.ready_expires'::regclass),
    ('expired', 'forebay.delayed_expires'::regclass),
    ('expired', 'forebay.side_lanes_expires'::regclass),
    ('delayed', 'forebay.delayed_order'::regclass),
    ('leases', 'forebay.leases_expires'::regclass),
    ('rescore', 'forebay.jobs_rescore'::regclass),
    ('scan', 'forebay.jobs_seq'::regclass),
    ('keys', 'forebay.job_keys_held_until'::regclass),
    ('events', 'forebay.events_occurred_at'::regclass),
    ('counts', 'forebay.queue_count_deltas_pkey'::regclass),
    ('outbox', 'forebay.dependency_outbox_pkey'::regclass),
    ('dead', 'forebay.dead_queue'::regclass),
    ('archive', 'forebay.job_archive_queue'::regclass)
  union all
  select 'finished', relid
  from pg_partition_tree('forebay.finished_queue'::regclass)
  where isleaf and 'finished' = any(%(names)b::text[])
) as i (name, index)
where name = any(%(names)b::text[])
group by name;
