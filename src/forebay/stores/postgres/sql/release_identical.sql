-- release_identical: of the jobs to which open edges lead from one that has completed, from an edge on, let those wait that
-- nothing else blocks and that stand as the caller thinks. Answers how many edges were looked at, the last of them, how
-- many jobs were released, and how many are still blocked as they were: `children_met` finds these. What that and `release`
-- do, without the jobs being told to whoever asks and named again.
-- Guarantees: as in `children_met`, no open edge changes under us, and no blocked row is seen of a job that came under the id
-- of one that was deleted. All blocked rows are held, by id, also those of jobs that stay: so the look at these that comes
-- next waits for nobody. Somebody may have amended a job while we waited for its row: the newest row of the job is looked at
-- then, and one that stands otherwise by now stays as it is.
with met as materialized (
  select child_id, position
  from forebay.dependencies
  where parent_id = %(parent_id)s and (child_id, position) > (%(cursor_child_id)s, %(cursor_position)s) and state = 'open'
  order by parent_id, child_id, position
  limit %(limit)s
),
locked as materialized (
  select id, unmet, seq
  from forebay.blocked
  where id = any(array(select child_id from met))
  order by id
  for update
),
moved as materialized (
  update forebay.jobs
  set ready_at = %(now)s,
      run_at = %(now)s,
      rank = %(rank)s,
      age_capped = %(age_capped)s,
      rescore_at = null,
      updated_at = %(now)s
  where id = any(array(
      select id
      from locked
      where unmet = 1 and seq > coalesce((select scan_position from forebay.maintenance where name = %(scan)s), 0)
    ))
    and queue = %(queue)s
    and priority = %(priority)s
    and failures = %(failures)s
    and options is not distinct from %(options)s
    and deadline_at is null
    and run_at <= %(now)s
    and created_at > %(created_after)s
  returning queue, age_capped, rank, seq, id, expires_at
),
free as (
  delete from forebay.blocked where id = any(array(select id from moved))
),
waiting as (
  insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
  select queue, age_capped, rank, seq, id, expires_at from moved
)
select (select count(*) from met), (select child_id from met order by child_id desc limit 1),
  (select position from met order by child_id desc, position desc limit 1), m.jobs, (select count(*) from locked) - m.jobs
from (select count(*) as jobs from moved) as m;
