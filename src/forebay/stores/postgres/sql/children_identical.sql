-- children_identical: the columns in which the next few children of a completed job may differ, of those that wait for
-- nothing else; one row if all are identical.
-- Index: dependencies_parent; one probe per job, see `delayed_take_due`.
select distinct j.queue, j.priority, j.failures, j.deadline_at, j.options
from (
  select child_id
  from forebay.dependencies
  where parent_id = %(parent_id)s and (child_id, position) > (%(cursor_child_id)s, %(cursor_position)s) and state = 'open'
  order by parent_id, child_id, position
  limit %(sample)s
) as e
cross join lateral (select id from forebay.blocked where id = e.child_id and unmet = 1 offset 0) as b
cross join lateral (
  select queue, priority, failures, deadline_at, options
  from forebay.jobs
  where id = e.child_id and run_at <= %(now)s
  offset 0
) as j
limit 2;
