-- edges_met: how many open edges lead from jobs that have completed to each child, from the edge on up to which each was looked
-- at, and the last of them.
-- Guarantees: no open edge changes under us, though we do not hold it: only lines of its parent change it, or who finds none on
-- the list, and the caller holds these; or who deletes its child. What blocks a child is looked at in a later statement, which
-- may find another job of that id: so the number of the one that is blocked here comes along.
-- Each job is looked up by itself and in the order of index edges_parent, for the reason that `due` gives.
select e.child, count(*), max(e.number), (select seq from forebay.blocked where id = e.child)
from (
  select e.child, e.number
  from unnest(%(parents)b::text[], %(after_children)b::text[], %(after_numbers)b::bigint[]) as p (parent, child, number)
  cross join lateral (
    select child, number
    from forebay.edges
    where parent = p.parent and (child, number) > (p.child, p.number) and state = 'open'
    order by parent, child, number
    limit %(limit)s
  ) as e
  limit %(limit)s
) as e
group by e.child
order by e.child;
