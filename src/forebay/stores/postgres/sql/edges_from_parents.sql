-- edges_from_parents: lock the edges in one of some states that lead from jobs.
-- Guarantees: what blocks a child is read in a later statement, so it is current once the locks of its edges are held.
-- Locks: edges by child and position, and before blocked rows; every transaction takes these locks in that order.
-- Index: dependencies_parent; one probe per job, see `delayed_take_due`.
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
