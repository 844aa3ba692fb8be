-- release: jobs that were blocked and stand alike wait like any others, from now on or from their time on. This transaction
-- holds their blocked rows, and their own.
with free as (
  delete from forebay.blocked where id = any(%(ids)b::text[])
),
moved as (
  update forebay.jobs
  set ready_at = %(ready_at)s,
      run_at = %(ready_at)s,
      rank = %(rank)s,
      capped = %(capped)s,
      rescore_at = %(rescore_at)s::bigint,
      updated_at = %(now)s
  where id = any(%(ids)b::text[])
  returning queue, capped, rank, seq, id, expires_at, run_at
),
later as (
  insert into forebay.due (id, queue, run_at, seq, state, expires_at)
  select id, queue, run_at, seq, 'scheduled', expires_at from moved where run_at > %(now)s
),
behind as (
  insert into forebay.gated (id, queue, gate, capped, rank, seq, expires_at)
  select id, queue, %(gate)s::text, capped, rank, seq, expires_at from moved
  where run_at <= %(now)s and %(gate)s::text is not null
)
insert into forebay.ready (queue, capped, rank, seq, id, expires_at)
select queue, capped, rank, seq, id, expires_at from moved
where run_at <= %(now)s and %(gate)s::text is null;
