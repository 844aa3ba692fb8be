-- name: has_dependencies: whether any job depends on another one, by an edge or in a sequence; in most stores none
-- does.
select exists (select 1 from forebay_dependencies) or exists (select 1 from forebay_sequences);

-- name: edge_set: set the state of an edge if it still is :old_state.
update forebay_dependencies set state = :state where child_id = :child_id and position = :position and state = :old_state;

-- name: edges_add: add edges of new jobs that have `on_failure` and state in common.
insert into forebay_dependencies (on_failure, state, child_id, position, parent_id)
select ?, ?, new.*
from (values
(?, ?, ?)
) as new;

-- name: edges_after: open edges of a completed job after a cursor. Index: forebay_dependencies_parent.
select child_id, position
from forebay_dependencies
where parent_id = :parent_id and state = 'open' and (child_id, position) > (:cursor_child_id, :cursor_position)
order by child_id, position
limit :limit;

-- name: edges_completed_by_child: number of open edges from these completed jobs to each child, up to a limit of
-- edges.
-- Index: forebay_dependencies_parent.
select child_id, count(*)
from (
  select edge.child_id
  from json_each(:parent_ids) as one cross join forebay_dependencies as edge
  where edge.parent_id = one.value and edge.state = 'open'
  limit :limit
)
group by child_id;

-- name: edges_from_parents: edges from a parent in one of two states, by child. Index: forebay_dependencies_parent.
select child_id, position, parent_id, on_failure, state
from forebay_dependencies
where parent_id = :parent_id and (state = :state or state = :other_state)
order by child_id, position
limit :limit;

-- name: edges_mark_met: mark the edges from a removed job as met, before a new job takes its id. The outbox has no
-- entry of it, so it had completed.
update forebay_dependencies
set state = 'met'
where parent_id = :parent_id
  and state = 'open';

-- name: edges_remove: remove the edges to the parents of a removed job.
delete from forebay_dependencies where child_id = :child_id;

-- name: edges_set: set the state of some edges of a job.
update forebay_dependencies set state = :state where child_id = :child_id and position in (select value from json_each(:positions));

-- name: edges_unchecked: edges of a revived job whose parents had failed, or are open.
select position, parent_id, state from forebay_dependencies where child_id = :child_id and (state = 'failed' or state = 'open') order by position;

-- name: edges_unmet: number of edges that block a revived job.
select count(*) from forebay_dependencies where child_id = :child_id and (state = 'open' or state = 'held');

-- name: parents: edges that lead to jobs. Index: the primary key.
select e.child_id, e.position, e.parent_id, e.on_failure, e.state
from json_each(:ids) as children
join forebay_dependencies e on e.child_id = children.value
order by children.key, e.position;

-- name: dependants: edges that lead from jobs. Index: forebay_dependencies_parent.
select child_id, position, parent_id, on_failure, state
from forebay_dependencies
where parent_id in (select value from json_each(:ids))
  and (:after is null or (parent_id, child_id, position) > (:after, :after_child_id, :after_position))
order by parent_id, child_id, position
limit :limit;

-- name: blocked: one blocked job. A job without a delay has no time to wait for (see `due_on_release`). A generated
-- id contains its seq; an id that a caller brought is looked up.
select seq, queue, priority, failures, deadline_at,
  case when run_at > max(created_at, updated_at) then run_at else 0 end, options, unmet
from forebay_jobs
where seq = :seq and id = :job_id and state = 'blocked'
union all
select seq, queue, priority, failures, deadline_at,
  case when run_at > max(created_at, updated_at) then run_at else 0 end, options, unmet
from forebay_jobs
where has_custom_id = 1 and id = :job_id and state = 'blocked'
limit 1;

-- name: blocked_among: the blocked ones of these jobs: how many edges block each, whether its sequence does, and
-- the values to release it.
-- :children is an object with the id of each by the seq in it. A job without a delay has no time to wait for
-- (see `due_on_release`).
select
  job.unmet,
  job.id,
  exists (
    select 1
    from forebay_sequences as own
    where own.job_id = one.value
      and exists (select 1 from forebay_sequences as f where f.name = own.name and f.position < own.position)
  ),
  job.seq, queue, priority, failures, deadline_at,
  case when run_at > max(created_at, updated_at) then run_at else 0 end,
  options
from json_each(:children) as one cross join forebay_jobs as job
where job.seq = one.key
  and job.id = one.value
  and job.state = 'blocked';

-- name: unmet_decrement: decrement the number of edges that block these jobs.
update forebay_jobs
set unmet = unmet - :met
where seq in (select value from json_each(:seqs)) and state = 'blocked';

-- name: release: release blocked jobs: they wait like any others, from now on or from their due time on.
update forebay_jobs
set state = :state,
    ready_at = :ready_at,
    run_at = :ready_at,
    rank = :rank,
    age_capped = :age_capped,
    rescore_at = :rescore_at,
    unmet = 0,
    updated_at = :now
where seq in (select value from json_each(:seqs)) and state = 'blocked';
