-- insert: insert new jobs that differ only in id, seq, options, key, payload and edges, with their narrow rows.
-- Guarantees: all of them or none. An id that another transaction has taken meanwhile is a unique violation, and the
-- transaction is retried: it then sees ids given by callers, and creates new ones for the rest.
-- Cost: seqs are sorted, so `width_bucket` finds a position by binary search.
with new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, created_at, updated_at, ready_at, run_at, rank, age_capped,
    rescore_at, deadline_at, expires_at, unique_key, payload, has_dependants
  )
  select n.id, n.seq, %(queue)s::text, %(task)s::text, %(priority)s::integer, n.options, %(now)s, %(now)s,
    %(due_at)s, %(due_at)s, %(rank)s, %(age_capped)s::boolean, %(rescore_at)s::bigint, %(deadline_at)s::bigint,
    %(expires_at)s::bigint, n.unique_key, n.payload, n.has_dependants > 0
  from unnest(
    %(ids)b::text[], %(seqs)b::bigint[], %(options)b::text[], %(unique_keys)b::text[], %(payloads)b::bytea[],
    %(dependants)b::bigint[]
  ) as n (id, seq, options, unique_key, payload, has_dependants)
  returning id, seq
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select %(queue)s::text, %(age_capped)s::boolean, %(rank)s, seq, id, %(expires_at)s::bigint
  from new
  where %(state)s::text = 'pending' and %(lane)s::text is null
),
parked as (
  insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
  select id, %(queue)s::text, %(lane)s::text, %(age_capped)s::boolean, %(rank)s, seq, %(expires_at)s::bigint
  from new
  where %(state)s::text = 'pending' and %(lane)s::text is not null
),
later as (
  insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
  select id, %(queue)s::text, %(due_at)s, seq, 'scheduled', %(expires_at)s::bigint
  from new
  where %(state)s::text = 'scheduled'
),
blocked_rows as (
  insert into forebay.blocked (id, queue, run_at, seq, unmet, expires_at)
  select id, %(queue)s::text, %(due_at)s, seq, (%(unmet)b::bigint[])[width_bucket(seq, %(seqs)b::bigint[])],
    %(expires_at)s::bigint
  from new
  where %(state)s::text = 'blocked'
)
select count(*) from new;
