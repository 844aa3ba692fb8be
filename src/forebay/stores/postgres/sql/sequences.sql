-- name: sequences_add: append jobs to their sequences, in the order given. A job whose end is not propagated yet keeps
-- its position.
-- Cost: the last position is probed by its index, since `max` may read all of a sequence. The offset keeps the other
-- probe from becoming a join, or a walk through the sequence.
insert into forebay.sequences (name, position, job_id)
select n.name, n.nth + coalesce((
    select s.position
    from forebay.sequences s
    where s.name = n.name and s.position is not null
    order by s.position desc
    limit 1
  ), 0), n.job_id
from unnest(%(names)b::text[], %(ids)b::text[]) with ordinality as n (name, job_id, nth)
where not exists (
  select 1
  from (select name from forebay.sequences where job_id = n.job_id offset 0) as s
  where s.name = n.name
);

-- name: sequences_add_unordered: store jobs of a caller transaction, which get their positions after its commit.
insert into forebay.sequences (name, job_id)
select n.name, n.job_id from unnest(%(names)b::text[], %(ids)b::text[]) as n (name, job_id);

-- name: sequences_among: those of these sequences that have jobs.
select n.name
from unnest(%(names)b::text[]) as n (name)
where exists (select 1 from forebay.sequences s where s.name = n.name and s.position is not null offset 0);

-- name: sequences_assign: append jobs without a position to their sequences, in the order given; answers them.
update forebay.sequences t
set position = array_position(%(ids)b::text[], t.job_id) + coalesce((
    select s.position
    from forebay.sequences s
    where s.name = t.name and s.position is not null
    order by s.position desc
    limit 1
  ), 0)
where t.job_id = any(%(ids)b::text[]) and t.position is null
returning t.job_id;

-- name: sequences_first: first jobs of sequences.
-- Index: sequences_order.
select n.name, f.position, f.job_id
from unnest(%(names)b::text[]) as n (name)
cross join lateral (
  select position, job_id from forebay.sequences where name = n.name and position is not null order by position limit 1
) as f;

-- name: sequences_lock: lock sequences until the transaction ends; no other transaction changes them. Their rows are
-- read by later statements.
-- Locks: by hash, as everywhere.
select pg_advisory_xact_lock(hashtext('forebay.sequences'), s.lock)
from (select distinct hashtext(name) as lock from unnest(%(names)b::text[]) as n (name) order by lock) as s;

-- name: sequences_of: sequences of jobs.
-- Index: sequences_job; one probe per job, see `delayed_take_due`.
select distinct s.name
from unnest(%(ids)b::text[]) as i (id)
cross join lateral (select name from forebay.sequences where job_id = i.id offset 0) as s;

-- name: sequences_remove: remove those of these jobs that are not live any more from their sequences; answers their
-- positions. A job that was revived meanwhile stays.
delete from forebay.sequences s
where s.job_id = any(%(ids)b::text[])
  -- The offset keeps this from becoming a join with all jobs.
  and not exists (select 1 from forebay.jobs j where j.id = s.job_id offset 0)
returning s.name, s.position;

-- name: sequences_rename: give those of these jobs that are not live any more other ids in their sequences; answers
-- them.
-- Index: sequences_job.
update forebay.sequences s
set job_id = (%(new_ids)b::text[])[array_position(%(ids)b::text[], s.job_id)]
where s.job_id = any(%(ids)b::text[])
  -- The offset keeps this from becoming a join with all jobs.
  and not exists (select 1 from forebay.jobs j where j.id = s.job_id offset 0)
returning s.job_id;

-- name: sequences_unassigned: sequences in which jobs have no position yet.
-- Index: sequences_job.
select distinct name from forebay.sequences where job_id = any(%(ids)b::text[]) and position is null;

-- name: sequences_waiting: those of these jobs that come after others of their sequences.
select distinct s.job_id
from forebay.sequences s
where s.job_id = any(%(ids)b::text[])
  and exists (select 1 from forebay.sequences f where f.name = s.name and f.position < s.position offset 0);
