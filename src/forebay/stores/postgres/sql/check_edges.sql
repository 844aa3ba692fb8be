-- check_edges: jobs that are blocked by no edge or sequence, jobs that should be blocked and are not, and edges without
-- a child.
with waiting as materialized (
  select child_id as id from forebay.dependencies where state in ('held', 'unchecked')
  union all
  select e.child_id
  from forebay.dependencies e
  where e.state = 'open'
    and (
      exists (select 1 from forebay.all_jobs j where j.id = e.parent_id and j.state <> 'completed')
      -- Its outbox entry has not resolved it yet.
      or exists (
        select 1
        from forebay.dependency_outbox a
        where a.job_id = e.parent_id and (e.child_id, e.position) > (a.cursor_child_id, a.cursor_position)
      )
    )
  union all
  select s.job_id
  from forebay.sequences s
  where s.position is null
    or exists (select 1 from forebay.sequences f where f.name = s.name and f.position < s.position)
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
    exists (select 1 from forebay.sequences s where s.job_id = j.id)
    or exists (select 1 from forebay.dependencies e where e.parent_id = j.id and e.state = 'open')
  )
union all
select distinct e.child_id, 'is gone and its edges are not'
from forebay.dependencies e
where not exists (select 1 from forebay.all_jobs j where j.id = e.child_id);
