-- insert: new jobs that differ only in id, seq, options, key and payload, with their narrow rows.
-- Guarantees: an id that is taken is left out, and the answer is then less than what was given.
with new as (
  insert into forebay.jobs (
    id, seq, queue, task, priority, options, created_at, updated_at, ready_at, run_at, rank, capped,
    rescore_at, deadline_at, expires_at, unique_key, payload
  )
  select n.id, n.seq, %(queue)s::text, %(task)s::text, %(priority)s::integer, n.options, %(now)s, %(now)s,
    %(due_at)s, %(due_at)s, %(rank)s, %(capped)s::boolean, %(rescore_at)s::bigint, %(deadline_at)s::bigint,
    %(expires_at)s::bigint, n.unique_key, n.payload
  from unnest(
    %(ids)b::text[], %(seqs)b::bigint[], %(options)b::text[], %(unique_keys)b::text[], %(payloads)b::bytea[]
  ) as n (id, seq, options, unique_key, payload)
  on conflict (id) do nothing
  returning id, seq
),
waiting as (
  insert into forebay.ready (queue, capped, rank, seq, id, expires_at)
  select %(queue)s::text, %(capped)s::boolean, %(rank)s, seq, id, %(expires_at)s::bigint
  from new
  where %(is_pending)s::boolean
),
later as (
  insert into forebay.due (id, queue, run_at, seq, state, expires_at)
  select id, %(queue)s::text, %(due_at)s, seq, 'scheduled', %(expires_at)s::bigint
  from new
  where not %(is_pending)s::boolean
)
select count(*) from new;
