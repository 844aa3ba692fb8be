-- release_identical: release the blocked children behind open edges of a completed job, from the cursor on, that wait
-- for nothing else and are as the caller expects. Answers how many edges were read, the last of them, how many jobs
-- were released, and how many stay blocked; `children_of_completed` finds these. It does what that and `release` do,
-- without sending the jobs to the caller and back.
-- Guarantees: as in `children_of_completed` no open edge changes meanwhile, and no blocked row is seen of a job
-- inserted under the id of a deleted one. An update may have changed a job while this statement waited for its row: the
-- newest row is rechecked, and a job that differs by now stays blocked.
-- Locks: all blocked rows by id, also of jobs that stay, so the next query of these waits for no lock.
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
