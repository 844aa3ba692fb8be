-- entries_read: how many entries this session has read so far of the indexes that duties look through. The difference
-- between two answers in one transaction is what a look between them has cost, dead entries included.
select name, sum(pg_stat_get_xact_tuples_returned(index::oid))::bigint
from (
  values
    ('expired', 'forebay.ready_expires'::regclass),
    ('expired', 'forebay.due_expires'::regclass),
    ('expired', 'forebay.gated_expires'::regclass),
    ('due', 'forebay.due_order'::regclass),
    ('leases', 'forebay.leases_until'::regclass),
    ('rescore', 'forebay.jobs_rescore'::regclass),
    ('walk', 'forebay.jobs_seq'::regclass),
    ('keys', 'forebay.keys_until'::regclass),
    ('events', 'forebay.events_at'::regclass),
    ('counts', 'forebay.count_deltas_pkey'::regclass),
    ('aftermaths', 'forebay.aftermaths_pkey'::regclass),
    ('dead', 'forebay.dead_queue'::regclass),
    ('archive', 'forebay.archive_queue'::regclass)
  union all
  select 'finished', relid
  from pg_partition_tree('forebay.finished_queue'::regclass)
  where isleaf and 'finished' = any(%(names)b::text[])
) as i (name, index)
where name = any(%(names)b::text[])
group by name;
