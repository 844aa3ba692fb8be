-- closed_save: when to look behind gates of a queue; of one that nobody waits behind there is no need to know.
with wanted as (
  select c.scope, c.look_at,
    -- Not `exists`: the planner might read all gates to look these up in memory.
    (select 1 from forebay.gated where queue = %(queue)s and gate = 'limit:' || c.scope limit 1) is not null
    or (select 1 from forebay.lanes where queue = %(queue)s and scope = c.scope limit 1) is not null as is_used
  from unnest(%(scopes)b::text[], %(looks)b::bigint[]) as c (scope, look_at)
),
-- Not one that is not due: where its limit was dropped nobody has locked anything, and somebody may have closed the gate
-- anew, under a limit that was saved meanwhile.
gone as (
  delete from forebay.closed
  where queue = %(queue)s
    and scope in (select scope from wanted where not is_used)
    and look_at <= current_setting('forebay_tx.now')::bigint
)
insert into forebay.closed (queue, scope, look_at)
select %(queue)s, scope, look_at from wanted where is_used
on conflict (queue, scope) do update set look_at = excluded.look_at;
