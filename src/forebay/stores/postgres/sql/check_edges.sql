-- check_edges: jobs that are blocked by nothing, or not blocked although their edges or sequences say so; loose edges.
with waiting as materialized (
  select child as id from forebay.edges where state in ('held', 'unsure')
  union all
  select e.child
  from forebay.edges e
  where e.state = 'open'
    and (
      exists (select 1 from forebay.all_jobs j where j.id = e.parent and j.state <> 'completed')
      -- The list has not come to it.
      or exists (
        select 1
        from forebay.aftermaths a
        where a.parent = e.parent and (e.child, e.number) > (a.after_child, a.after_number)
      )
    )
  union all
  select s.id
  from forebay.sequences s
  where s.number is null
    or exists (select 1 from forebay.sequences f where f.name = s.name and f.number < s.number)
)
select b.id, 'is blocked by ' || b.unmet || ' edges, and has another number of them'
from forebay.blocked b
left join (select id, count(*) as unmet from waiting group by id) as w on w.id = b.id
where b.unmet <> coalesce(w.unmet, 0)
union all
select j.id, 'is not blocked, and an edge says so'
from forebay.jobs j
where not exists (select 1 from forebay.blocked b where b.id = j.id)
  and exists (select 1 from waiting w where w.id = j.id)
union all
select j.id, 'has dependants, and does not know it'
from forebay.jobs j
where not j.has_dependants
  and (
    exists (select 1 from forebay.sequences s where s.id = j.id)
    or exists (select 1 from forebay.edges e where e.parent = j.id and e.state = 'open')
  )
union all
select distinct e.child, 'is gone and its edges are not'
from forebay.edges e
where not exists (select 1 from forebay.all_jobs j where j.id = e.child);
