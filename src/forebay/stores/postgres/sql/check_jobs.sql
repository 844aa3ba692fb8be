-- check_jobs: jobs with two narrow rows or none, and narrow rows that differ from their job.
with narrow as (
  select id, queue, 'ready' as location from forebay.ready
  union all
  select id, queue, 'side_lanes' from forebay.side_lanes
  union all
  select id, queue, 'delayed' from forebay.delayed
  union all
  select id, queue, 'blocked' from forebay.blocked
  union all
  select id, queue, 'leases' from forebay.leases
)
select id, 'is in two places' from forebay.all_jobs group by id having count(*) > 1
union all
select j.id, 'waits nowhere' from forebay.jobs j where not exists (select 1 from narrow n where n.id = j.id)
union all
select id, 'has two states: ' || string_agg(location, ', ') from narrow group by id having count(*) > 1
union all
select n.id, 'is no job and in ' || n.location
from narrow n
where not exists (select 1 from forebay.jobs j where j.id = n.id and j.queue = n.queue)
union all
select j.id, 'does not stand where it says'
from forebay.jobs j
join forebay.ready r on r.id = j.id
where (r.age_capped, r.rank, r.seq) is distinct from (j.age_capped, j.rank, j.seq)
   or r.expires_at is distinct from j.expires_at
union all
select j.id, 'is not due when it says'
from forebay.jobs j
join forebay.delayed d on d.id = j.id
where (d.run_at, d.seq) is distinct from (j.run_at, j.seq)
   or d.expires_at is distinct from j.expires_at
union all
select g.id, 'is in the lane of a fairness key that is not known'
from forebay.side_lanes g
where g.lane like 'fairness:%%'
  and not exists (select 1 from forebay.fairness_keys s where s.queue = g.queue and s.fairness_key = substr(g.lane, 10))
union all
select g.id, 'is in a limit lane of a fairness key that is not known'
from forebay.side_lanes g
where g.lane like 'limit:%%'
  and split_part(g.lane, E'\t', 2) <> ''
  and not exists (
    select 1
    from forebay.limit_fairness_lanes l
    where l.queue = g.queue
      and l.scope = split_part(substr(g.lane, 7), E'\t', 1)
      and l.fairness_key = split_part(g.lane, E'\t', 2)
  )
union all
select j.id, 'is in no known queue'
from forebay.jobs j
where not exists (select 1 from forebay.queues q where q.name = j.queue)
union all
-- Due a minute before the last promotion of everything due, and still delayed.
select id, 'was due and has not been moved'
from forebay.delayed
where run_at <= (select due_at from forebay.maintenance where name = 'promote') - %(late_ms)s
  -- In a staggered queue they may wait for any time.
  and queue not in (select name from forebay.queues where settings::json ->> 'promote_per_second' is not null);
