-- limit_lanes_save: when to look behind gates of a queue; of one that nobody waits behind there is no need to know.
with wanted as (
  select c.scope, c.recheck_at,
    -- Not `exists`: the planner might read all gates to look these up in memory.
    (select 1 from forebay.side_lanes where queue = %(queue)s and lane = 'limit:' || c.scope limit 1) is not null
    or (select 1 from forebay.limit_fairness_lanes where queue = %(queue)s and scope = c.scope limit 1) is not null as is_used
  from unnest(%(scopes)b::text[], %(recheck_times)b::bigint[]) as c (scope, recheck_at)
),
-- Not one that is not due: where its limit was dropped nobody has locked anything, and somebody may have closed the gate
-- anew, under a limit that was saved meanwhile.
removed as (
  delete from forebay.limit_lanes
  where queue = %(queue)s
    and scope in (select scope from wanted where not is_used)
    and recheck_at <= current_setting('forebay_tx.now')::bigint
)
insert into forebay.limit_lanes (queue, scope, recheck_at)
select %(queue)s, scope, recheck_at from wanted where is_used
on conflict (queue, scope) do update set recheck_at = excluded.recheck_at;
