-- edges_from_parents: edges that lead from jobs in one of some states, held.
-- Guarantees: edges are locked by child and number, and before blocked rows: that is the order of all who take these locks.
-- What blocks a child is looked at in a later statement, so that it is as it was left by whoever had held its edges.
-- Each job is looked up by itself and in the order of index edges_parent, for the reason that `due` gives.
with seen as materialized (
  select e.ctid
  from unnest(%(parent_ids)b::text[]) as p (parent_id)
  cross join unnest(%(states)b::text[]) as s (state)
  cross join lateral (
    select ctid
    from forebay.dependencies
    where parent_id = p.parent_id and state = s.state
    order by parent_id, child_id, position
    limit %(limit)s
  ) as e
  limit %(limit)s
)
select child_id, position, parent_id, on_failure, case state when 'unchecked' then 'open' else state end, ctid::text
from forebay.dependencies
where ctid = any(array(select ctid from seen)) and state = any(%(states)b::text[])
order by child_id, position
for update;
