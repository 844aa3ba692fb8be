-- edges_behind: edges that lead from jobs in one of some states, held.
-- Guarantees: edges are locked by child and number, and before blocked rows: that is the order of all who take these locks.
-- What blocks a child is looked at in a later statement, so that it is as it was left by whoever had held its edges.
-- Each job is looked up by itself and in the order of index edges_parent, for the reason that `due` gives.
with seen as materialized (
  select e.spot
  from unnest(%(parents)b::text[]) as p (parent)
  cross join unnest(%(states)b::text[]) as s (state)
  cross join lateral (
    select ctid as spot
    from forebay.edges
    where parent = p.parent and state = s.state
    order by parent, child, number
    limit %(limit)s
  ) as e
  limit %(limit)s
)
select child, number, parent, on_failure, case state when 'unsure' then 'open' else state end, ctid::text
from forebay.edges
where ctid = any(array(select spot from seen)) and state = any(%(states)b::text[])
order by child, number
for update;
