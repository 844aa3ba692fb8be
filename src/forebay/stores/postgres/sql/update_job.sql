-- update_job: update a waiting job whose narrow row this transaction has removed, and insert a new one.
-- Guarantees: the new row makes a claim that has just read the old one retry.
with moved as (
  update forebay.jobs
  set queue = %(queue)s,
      priority = %(priority)s,
      options = %(options)s::text,
      run_at = %(run_at)s,
      ready_at = %(ready_at)s,
      rank = %(rank)s,
      age_capped = %(age_capped)s,
      rescore_at = case when %(has_rank)s::boolean then %(rescore_at)s::bigint else rescore_at end,
      updated_at = %(now)s
  where id = %(id)s
  returning id, queue, seq, rank, age_capped, run_at, expires_at
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select queue, age_capped, rank, seq, id, expires_at
  from moved
  where %(state)s::text = 'pending' and %(lane)s::text is null
),
parked as (
  insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
  select id, queue, %(lane)s::text, age_capped, rank, seq, expires_at
  from moved
  where %(state)s::text = 'pending' and %(lane)s::text is not null
)
insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
select id, queue, run_at, seq, %(state)s::text, expires_at
from moved
where %(state)s::text <> 'pending';
