-- lanes_join: jobs of shares wait behind limits. A new lane begins a step behind the first.
-- Locks: the caller holds the lock of the queue's shares.
insert into forebay.lanes (queue, scope, share, turn, resume)
select %(queue)s::text, n.scope, n.share, coalesce(f.turn, 0) + n.step, coalesce(s.turn, 0)
from unnest(%(scopes)b::text[], %(shares)b::text[], %(steps)b::bigint[]) as n (scope, share, step)
left join lateral (
  select turn from forebay.lanes where queue = %(queue)s and scope = n.scope order by turn limit 1
) as f on true
left join lateral (
  select turn from forebay.shares where queue = %(queue)s and share = n.share and turn is not null limit 1
) as s on true
on conflict (queue, scope, share) do nothing;
