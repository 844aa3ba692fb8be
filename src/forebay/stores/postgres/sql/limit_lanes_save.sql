-- limit_lanes_save: set when limit lanes of a queue are rechecked; lanes without jobs are forgotten.
with wanted as (
  select c.scope, c.recheck_at,
    -- Not `exists`: the planner might read all lanes and hash them.
    (select 1 from forebay.side_lanes where queue = %(queue)s and lane = 'limit:' || c.scope limit 1) is not null
    or (select 1 from forebay.limit_fairness_lanes where queue = %(queue)s and scope = c.scope limit 1) is not null
    as is_used
  from unnest(%(scopes)b::text[], %(recheck_times)b::bigint[]) as c (scope, recheck_at)
),
-- Only due ones: if the limit was dropped, no lock is held here, and another transaction may have filled the lane again
-- under a limit that was saved meanwhile.
removed as (
  delete from forebay.limit_lanes
  where queue = %(queue)s
    and scope in (select scope from wanted where not is_used)
    and recheck_at <= current_setting('forebay_tx.now')::bigint
)
insert into forebay.limit_lanes (queue, scope, recheck_at)
select %(queue)s, scope, recheck_at from wanted where is_used
on conflict (queue, scope) do update set recheck_at = excluded.recheck_at;
