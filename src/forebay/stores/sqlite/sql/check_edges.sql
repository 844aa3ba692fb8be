-- check_edges: jobs that are blocked by nothing, or not blocked although their edges say so; loose edges.
select j.id, 'is blocked, and no edge says so'
from forebay_jobs j
where j.state = 'blocked'
  and not exists (select 1 from forebay_edges e where e.child = j.id and (e.state = 'open' or e.state = 'held'))
union all
select j.id, 'is ' || j.state || ', and an edge blocks it'
from forebay_jobs j
where j.state <> 'blocked'
  and exists (select 1 from forebay_edges e where e.child = j.id and (e.state = 'open' or e.state = 'held'))
union all
select distinct e.child, 'is gone and its edges are not'
from forebay_edges e
where not exists (select 1 from forebay_all_jobs j where j.id = e.child);
