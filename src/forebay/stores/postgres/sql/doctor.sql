-- name: check_edges: jobs that are blocked by no edge or sequence, jobs that should be blocked and are not, and edges
-- without a child.
with waiting as materialized (
  select child_id as id from forebay.dependencies where state in ('held', 'unchecked')
  union all
  select e.child_id
  from forebay.dependencies e
  where e.state = 'open'
    and (
      exists (select 1 from forebay.all_jobs j where j.id = e.parent_id and j.state <> 'completed')
      -- Its outbox entry has not resolved it yet.
      or exists (
        select 1
        from forebay.dependency_outbox a
        where a.job_id = e.parent_id and (e.child_id, e.position) > (a.cursor_child_id, a.cursor_position)
      )
    )
  union all
  select s.job_id
  from forebay.sequences s
  where s.position is null
    or exists (select 1 from forebay.sequences f where f.name = s.name and f.position < s.position)
)
select b.id, 'is blocked by ' || b.unmet || ' edges, and has another number of them'
from forebay.blocked b
left join (select id, count(*) as unmet from waiting group by id) as w on w.id = b.id
where b.unmet <> coalesce(w.unmet, 0)
union all
select j.id, 'is not blocked, and an edge says so'
from forebay.jobs j
where not exists (select 1 from forebay.blocked b where b.id = j.id)
  and exists (select 1 from waiting w where w.id = j.id)
union all
select j.id, 'has dependants, and does not know it'
from forebay.jobs j
where not j.has_dependants
  and (
    exists (select 1 from forebay.sequences s where s.job_id = j.id)
    or exists (select 1 from forebay.dependencies e where e.parent_id = j.id and e.state = 'open')
  )
union all
select distinct e.child_id, 'is gone and its edges are not'
from forebay.dependencies e
where not exists (select 1 from forebay.all_jobs j where j.id = e.child_id);

-- name: check_jobs: jobs with two narrow rows or none, and narrow rows that differ from their job.
with narrow as (
  select id, queue, 'ready' as location from forebay.ready
  union all
  select id, queue, 'side_lanes' from forebay.side_lanes
  union all
  select id, queue, 'delayed' from forebay.delayed
  union all
  select id, queue, 'blocked' from forebay.blocked
  union all
  select id, queue, 'leases' from forebay.leases
)
select id, 'is in two places' from forebay.all_jobs group by id having count(*) > 1
union all
select j.id, 'waits nowhere' from forebay.jobs j where not exists (select 1 from narrow n where n.id = j.id)
union all
select id, 'has two states: ' || string_agg(location, ', ') from narrow group by id having count(*) > 1
union all
select n.id, 'is no job and in ' || n.location
from narrow n
where not exists (select 1 from forebay.jobs j where j.id = n.id and j.queue = n.queue)
union all
select j.id, 'does not stand where it says'
from forebay.jobs j
join forebay.ready r on r.id = j.id
where (r.age_capped, r.rank, r.seq) is distinct from (j.age_capped, j.rank, j.seq)
   or r.expires_at is distinct from j.expires_at
union all
select j.id, 'is not due when it says'
from forebay.jobs j
join forebay.delayed d on d.id = j.id
where (d.run_at, d.seq) is distinct from (j.run_at, j.seq)
   or d.expires_at is distinct from j.expires_at
union all
select g.id, 'is in the lane of a fairness key that is not known'
from forebay.side_lanes g
where g.lane like 'fairness:%%'
  and not exists (select 1 from forebay.fairness_keys s where s.queue = g.queue and s.fairness_key = substr(g.lane, 10))
union all
select g.id, 'is in a limit lane of a fairness key that is not known'
from forebay.side_lanes g
where g.lane like 'limit:%%'
  and split_part(g.lane, E'\t', 2) <> ''
  and not exists (
    select 1
    from forebay.limit_fairness_lanes l
    where l.queue = g.queue
      and l.scope = split_part(substr(g.lane, 7), E'\t', 1)
      and l.fairness_key = split_part(g.lane, E'\t', 2)
  )
union all
select j.id, 'is in no known queue'
from forebay.jobs j
where not exists (select 1 from forebay.queues q where q.name = j.queue)
union all
-- Due a minute before the last promotion of everything due, and still delayed.
select id, 'was due and has not been moved'
from forebay.delayed
where run_at <= (select due_at from forebay.maintenance where name = 'promote') - %(late_ms)s
  -- In a staggered queue they may wait for any time.
  and queue not in (select name from forebay.queues where settings::json ->> 'promote_per_second' is not null);

-- name: check_keys: unique keys that no live job holds, and live jobs that lack their unique key.
select 'key ' || k.key || ' of queue ' || k.queue, 'is held by no live job'
from forebay.job_keys k
where k.kind = 'unique'
  and not exists (
    select 1 from forebay.jobs j where j.id = k.job_id and j.queue = k.queue and j.unique_key = k.key
  )
union all
select 'job ' || j.id, 'does not hold its unique key'
from forebay.live_jobs j
where j.unique_key is not null
  and (
    -- PostgreSQL reads no JSON with a zero character; see `search`.
    coalesce(forebay.try_json(replace(j.options, '\u0000', '\u2400')) ->> 'unique_until', 'final') = 'final'
    or j.attempt = 0
  )
  and not exists (
    select 1
    from forebay.job_keys k
    where k.queue = j.queue and k.kind = 'unique' and k.key = j.unique_key and k.job_id = j.id
  );

-- name: check_planning: allow sequential scans and hash joins, since checks read whole tables.
select set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),
  set_config('enable_bitmapscan', 'on', true), set_config('enable_mergejoin', 'on', true),
  set_config('enable_material', 'on', true), set_config('statement_timeout', '10min', true);

-- name: index_entries_read: entries of the indexes of maintenance tasks that this session has read so far. The
-- difference of two answers in one transaction is the cost of the scan between them, dead entries included.
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

-- name: server_usage: how many clients are connected to the server, and how many it accepts that are not superusers.
-- Reads no table of Forebay. Not from pg_stat_activity: a plain role does not see the kind of sessions of other roles,
-- and would count its own only.
select (select sum(numbackends) from pg_stat_database where datid <> 0)::int,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int;
