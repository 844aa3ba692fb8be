-- name: check_edges: jobs with wrong edges: blocked by nothing, or by another number of edges than their `unmet`,
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

-- name: check_indexes: waiting jobs that neither a claim nor `promote` can find, because the index of their order
-- lacks them; `quick_check` does not compare indexes with their tables.
-- Then jobs that were due a minute before the last complete `promote`, and are still delayed.
select id, 'is pending and in no order'
from forebay_jobs not indexed
where state = 'pending'
  and seq not in (select seq from forebay_jobs indexed by forebay_jobs_ready where state = 'pending')
union all
select id, 'waits for its time and is in no order'
from forebay_jobs not indexed
where (state = 'scheduled' or state = 'retrying')
  and seq not in (
    select seq from forebay_jobs indexed by forebay_jobs_delayed where state = 'scheduled' or state = 'retrying'
  )
union all
select id, 'was due and has not been moved'
from forebay_jobs
where (state = 'scheduled' or state = 'retrying')
  and run_at <= (select due_at from forebay_maintenance where name = 'promote') - :late_ms
  -- In a staggered queue due jobs may wait for any time.
  and queue not in (
    select name
    from forebay_queues
    where iif(json_valid(settings), settings, null) ->> 'promote_per_second' is not null
  );

-- name: check_jobs: impossible jobs: in two tables, or with a lease that contradicts their state.
select id, 'is in two places' from forebay_all_jobs group by seq having count(*) > 1
union all
select id, 'has its id twice' from forebay_all_jobs group by id having count(*) > 1
union all
select id, 'is running without a lease'
from forebay_jobs
where state = 'running' and (worker is null or lease_expires_at is null or started_at is null or attempt = 0)
union all
select id, 'has a lease but is not running'
from forebay_jobs
where state <> 'running' and lease_expires_at is not null
union all
select j.id, 'is in no known queue'
from forebay_jobs j
where not exists (select 1 from forebay_queues q where q.name = j.queue);

-- name: check_keys: unique keys without a live holder, and live jobs that should hold theirs and do not.
select 'key ' || k.key || ' of queue ' || k.queue, 'is held by no live job'
from forebay_job_keys k
where k.kind = 'unique'
  and not exists (
    select 1 from forebay_jobs j where j.id = k.job_id and j.queue = k.queue and j.unique_key = k.key
  )
union all
select 'job ' || j.id, 'does not hold its unique key'
from forebay_jobs j
where j.unique_key is not null
  and (
    coalesce(iif(json_valid(j.options), j.options, null) ->> 'unique_until', 'final') = 'final'
    or j.attempt = 0
  )
  and not exists (
    select 1
    from forebay_job_keys k
    where k.queue = j.queue and k.kind = 'unique' and k.key = j.unique_key and k.job_id = j.id
  );
