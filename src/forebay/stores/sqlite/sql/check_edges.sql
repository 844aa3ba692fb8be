-- check_edges: jobs that are blocked by nothing, or by another number of edges than they know, or not blocked although their
-- edges or their sequences say so; loose edges.
-- As lists: ids have no index, and to look for each would read all jobs as often as there are edges.
with open_edges (child) as (
  select child from forebay_edges where state = 'held'
  union all
  select e.child
  from forebay_edges e
  where e.state = 'open'
    and (
      e.parent in (select id from forebay_all_jobs where state <> 'completed')
      -- The list has not come to it.
      or exists (
        select 1
        from forebay_aftermaths a
        where a.parent = e.parent
          and (a.aftermath = 'completed' or a.aftermath = 'deleted')
          and (e.child, e.number) > (a.after_child, a.after_number)
      )
    )
),
waiting (id, edges) as (
  select child, count(*) from open_edges group by child
),
behind (id) as (
  select s.id
  from forebay_sequences s
  where exists (select 1 from forebay_sequences f where f.name = s.name and f.number < s.number)
)
select j.id, 'is blocked, and no edge says so'
from forebay_jobs j
where j.state = 'blocked' and j.id not in (select id from waiting) and j.id not in (select id from behind)
union all
select j.id, 'is blocked by ' || j.unmet || ' edges, and has another number of them'
from forebay_jobs j
where j.state = 'blocked' and j.unmet <> coalesce((select edges from waiting where waiting.id = j.id), 0)
union all
select j.id, 'is ' || j.state || ', and an edge blocks it'
from forebay_jobs j
where j.state <> 'blocked' and (j.id in (select id from waiting) or j.id in (select id from behind))
union all
select distinct e.child, 'is gone and its edges are not'
from forebay_edges e
where e.child not in (select id from forebay_all_jobs);
