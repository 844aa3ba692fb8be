-- check_edges: jobs that are blocked by nothing, or not blocked although their edges say so; loose edges.
select b.id, 'is blocked by ' || b.unmet || ' edges, and has another number of them'
from forebay.blocked b
where b.unmet <> (select count(*) from forebay.edges e where e.child = b.id and e.state in ('open', 'held'))
union all
select j.id, 'is not blocked, and an edge says so'
from forebay.jobs j
where not exists (select 1 from forebay.blocked b where b.id = j.id)
  and exists (select 1 from forebay.edges e where e.child = j.id and e.state in ('open', 'held'))
union all
select j.id, 'has dependants, and does not know it'
from forebay.jobs j
where not j.has_dependants
  and exists (
    select 1
    from forebay.edges e
    where e.parent = j.id
      and e.state = 'open'
      and not exists (select 1 from forebay.aftermaths a where a.parent = e.child)
  )
union all
select distinct e.child, 'is gone and its edges are not'
from forebay.edges e
where not exists (select 1 from forebay.all_jobs j where j.id = e.child);
