-- edges_met: the open edges that lead from jobs are met; how many to each child.
-- Guarantees: edges are locked by child and number, and before blocked rows: that is the order of all who take these locks.
-- What blocks a child is looked at in a later statement, so that it is as it was left by whoever had held its edges.
-- Each job is looked up by itself and in the order of index edges_parent, for the reason that `due` gives. No open edge
-- changes while we wait for its lock: only lines of its parent on the list change it, and the caller holds these.
with seen as materialized (
  select e.spot
  from unnest(%(parents)b::text[]) as p (parent)
  cross join lateral (
    select ctid as spot
    from forebay.edges
    where parent = p.parent and state = 'open'
    order by parent, child, number
    limit %(limit)s
  ) as e
  limit %(limit)s
),
found as materialized (
  select child, ctid as spot
  from forebay.edges
  where ctid = any(array(select spot from seen)) and state = 'open'
  order by child, number
  for update
),
met as (
  update forebay.edges set state = 'met' where ctid = any(array(select spot from found))
)
select child, count(*) from found group by child order by child;
