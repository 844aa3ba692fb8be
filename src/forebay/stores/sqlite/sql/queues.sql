-- name: queue: one queue by name.
select name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at
from forebay_queues
where name = :name;

-- name: queue_save: save a queue.
insert into forebay_queues (name, state, settings, scoring_version, rescored_to_seq, created_at, updated_at)
values (:name, :state, :settings, :scoring_version, :rescored_to_seq, :created_at, :updated_at)
on conflict (name) do update
set state = excluded.state,
    settings = excluded.settings,
    scoring_version = excluded.scoring_version,
    rescored_to_seq = excluded.rescored_to_seq,
    updated_at = excluded.updated_at;

-- name: dropped_queue_delayed: scheduled, retrying and blocked jobs of a dropped queue, earliest first.
-- Index: forebay_jobs_delayed (queue, run_at) and forebay_jobs_blocked (queue, run_at), one for each part.
select seq, id
from (
  select * from (
    select seq, id, run_at
    from forebay_jobs
    where (state = 'scheduled' or state = 'retrying') and queue = :queue
    order by run_at, seq
    limit :limit
  )
  union all
  select * from (
    select seq, id, run_at
    from forebay_jobs
    where state = 'blocked' and queue = :queue
    order by run_at, seq
    limit :limit
  )
)
order by run_at, seq
limit :limit;

-- name: dropped_queue_jobs: pending jobs of a dropped queue, first of its main order, then of its lanes.
-- Index: forebay_jobs_ready (queue, lane, age_capped, rank).
select seq, id
from forebay_jobs
where state = 'pending'
  and queue = :queue
order by lane, age_capped, rank, seq
limit :limit;

-- name: count: add to the counter of one queue and state; :jobs may be negative.
insert into forebay_queue_counts (queue, state, jobs)
values (:queue, :state, :jobs)
on conflict (queue, state) do update
set jobs = jobs + excluded.jobs;

-- name: counts: counters of all queues, with the jobs inserted since the last count.
select queue, state, sum(jobs)
from (
  select queue, state, jobs from forebay_queue_counts where queue <> ''
  union all
  select queue, state, count(*)
  from forebay_jobs
  where seq > coalesce((select jobs from forebay_queue_counts where queue = '' and state = 'counted'), 0)
  group by queue, state
)
group by queue, state;

-- name: removed_counts: number of removed jobs of each queue.
select queue, jobs from forebay_removed_counts;

-- name: removed_counts_add: count more removed jobs of a queue.
insert into forebay_removed_counts (queue, jobs)
values (:queue, :jobs)
on conflict (queue) do update
set jobs = jobs + excluded.jobs;

-- name: running: number of running jobs of all queues, by the counters.
select coalesce(sum(jobs), 0)
from forebay_queue_counts
where state = 'running';

-- name: states: states of jobs, whatever table they are in; :ids is an object with the id of each by the seq in it.
-- Not by the view of all jobs: a join with it would read every row.
select job.id, job.state
from json_each(:ids) as one cross join forebay_jobs as job
where job.seq = one.key and job.id = one.value
union all
select job.id, job.state
from json_each(:ids) as one cross join forebay_finished as job
where job.seq = one.key and job.id = one.value
union all
select job.id, job.state
from json_each(:ids) as one cross join forebay_dead as job
where job.seq = one.key and job.id = one.value;
