-- amend: change a job whose narrow row this transaction has removed, and give it a new one. The new row makes
-- every claim that has just looked at the old one look again.
with moved as (
  update forebay.jobs
  set queue = %(queue)s,
      priority = %(priority)s,
      options = %(options)s::text,
      run_at = %(run_at)s,
      ready_at = %(ready_at)s,
      rank = %(rank)s,
      capped = %(age_capped)s,
      rescore_at = case when %(has_place)s::boolean then %(rescore_at)s::bigint else rescore_at end,
      updated_at = %(now)s
  where id = %(id)s
  returning id, queue, seq, rank, capped, run_at, expires_at
),
waiting as (
  insert into forebay.ready (queue, capped, rank, seq, id, expires_at)
  select queue, capped, rank, seq, id, expires_at
  from moved
  where %(state)s::text = 'pending' and %(gate)s::text is null
),
behind as (
  insert into forebay.gated (id, queue, gate, capped, rank, seq, expires_at)
  select id, queue, %(gate)s::text, capped, rank, seq, expires_at
  from moved
  where %(state)s::text = 'pending' and %(gate)s::text is not null
)
insert into forebay.due (id, queue, run_at, seq, state, expires_at)
select id, queue, run_at, seq, %(state)s::text, expires_at
from moved
where %(state)s::text <> 'pending';
