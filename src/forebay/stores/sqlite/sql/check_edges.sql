-- check_edges: jobs with wrong edges: blocked by nothing, or by another number of edges than their `unmet`,
-- or not blocked despite their edges or their sequence. Edges of removed children.
-- Cost: as lists, because ids have no index: a look-up for each would read all jobs as often as there are
-- edges.
with open_edges (child_id) as (
  select child_id from forebay_dependencies where state = 'held'
  union all
  select e.child_id
  from forebay_dependencies e
  where e.state = 'open'
    and (
      e.parent_id in (select id from forebay_all_jobs where state <> 'completed')
      -- The outbox has not resolved it yet.
      or exists (
        select 1
        from forebay_dependency_outbox a
        where a.job_id = e.parent_id
          and (a.event = 'completed' or a.event = 'deleted')
          and (e.child_id, e.position) > (a.cursor_child_id, a.cursor_position)
      )
    )
),
waiting (id, edges) as (
  select child_id, count(*) from open_edges group by child_id
),
behind_in_sequence (id) as (
  select s.job_id
  from forebay_sequences s
  where exists (select 1 from forebay_sequences f where f.name = s.name and f.position < s.position)
)
select j.id, 'is blocked, and no edge says so'
from forebay_jobs j
where j.state = 'blocked' and j.id not in (select id from waiting) and j.id not in (select id from behind_in_sequence)
union all
select j.id, 'is blocked by ' || j.unmet || ' edges, and has another number of them'
from forebay_jobs j
where j.state = 'blocked' and j.unmet <> coalesce((select edges from waiting where waiting.id = j.id), 0)
union all
select j.id, 'is ' || j.state || ', and an edge blocks it'
from forebay_jobs j
where j.state <> 'blocked' and (j.id in (select id from waiting) or j.id in (select id from behind_in_sequence))
union all
select distinct e.child_id, 'is gone and its edges are not'
from forebay_dependencies e
where e.child_id not in (select id from forebay_all_jobs);
