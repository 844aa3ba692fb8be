-- check_edges: jobs that are blocked by nothing, or not blocked although their edges or their sequences say so; loose
-- edges.
with waiting (id) as (
  select child from forebay_edges where state = 'open' or state = 'held'
  union
  select s.id
  from forebay_sequences s
  where exists (select 1 from forebay_sequences f where f.name = s.name and f.number < s.number)
)
select j.id, 'is blocked, and no edge says so'
from forebay_jobs j
where j.state = 'blocked' and j.id not in (select id from waiting)
union all
select j.id, 'is ' || j.state || ', and an edge blocks it'
from forebay_jobs j
where j.state <> 'blocked' and j.id in (select id from waiting)
union all
select distinct e.child, 'is gone and its edges are not'
from forebay_edges e
-- As one list: ids have no index, and to look for each would read all jobs as often as there are edges.
where e.child not in (select id from forebay_all_jobs);
