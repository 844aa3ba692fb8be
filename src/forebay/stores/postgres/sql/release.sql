-- release: jobs that were blocked and stand alike wait like any others, from now on or from their time on. This transaction
-- holds their blocked rows. Answers how many they are.
-- Guarantees: none is released whose priority is another than the one by which its place was worked out. Somebody may have
-- amended it between the look and the lock of whoever asks; whoever amends holds the blocked row, as we do now, so it is over,
-- and seen by this later statement. To hold the jobs before they are looked at took a fan-out a tenth longer.
with moved as materialized (
  update forebay.jobs
  set ready_at = %(ready_at)s,
      run_at = %(ready_at)s,
      rank = %(rank)s,
      age_capped = %(age_capped)s,
      rescore_at = %(rescore_at)s::bigint,
      updated_at = %(now)s
  where id = any(%(ids)b::text[]) and priority = %(priority)s
  returning queue, age_capped, rank, seq, id, expires_at, run_at
),
free as (
  delete from forebay.blocked where id = any(array(select id from moved))
),
later as (
  insert into forebay.delayed (id, queue, run_at, seq, state, expires_at)
  select id, queue, run_at, seq, 'scheduled', expires_at from moved where run_at > %(now)s
),
parked as (
  insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
  select id, queue, %(lane)s::text, age_capped, rank, seq, expires_at from moved
  where run_at <= %(now)s and %(lane)s::text is not null
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select queue, age_capped, rank, seq, id, expires_at from moved
  where run_at <= %(now)s and %(lane)s::text is null
)
select count(*) from moved;
