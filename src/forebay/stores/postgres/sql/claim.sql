-- name: candidates: lock the next jobs of the main order of a queue and read them. They are not taken yet: the caller
-- decides which of them it runs, and `claim` or `park` moves these in the same transaction.
-- Guarantees: a row that another claim has locked is passed over (SKIP LOCKED), so no claim waits and no job is claimed
-- twice. A change of a waiting job replaces its narrow row, so a locked row is current.
-- Index: primary key of `ready`, one range for each class, the uncapped one from the claim cursor on;
-- ready_inserted_xid for rows that arrived behind the cursor.
-- Cost: arrivals are found in the order of their index and sorted afterwards (`offset 0`). Otherwise the planner might
-- walk the whole order with all its dead tuples: if the table was analysed when it was empty, the primary key seems
-- cheaper.
with uncapped as materialized (
  select ctid, id, current_setting('forebay_tx.now')::bigint - rank as effective_priority, seq, false as is_late
  from forebay.ready
  where queue = %(queue)s
    and age_capped = false
    and (rank, seq) > (%(after_rank)s, %(after_seq)s)
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(room)s
  for update skip locked
),
arrivals as materialized (
  select ctid
  from (
    (
      select ctid, age_capped, rank, seq, expires_at
      from forebay.ready
      where queue = %(queue)s and inserted_xid >= %(xmax)s::text::xid8
      order by inserted_xid
      offset 0
    )
    union all
    (
      select r.*
      from unnest(%(running_xids)b::text[]) as u (xid)
      cross join lateral (
        select ctid, age_capped, rank, seq, expires_at
        from forebay.ready
        where queue = %(queue)s and inserted_xid >= u.xid::xid8 and inserted_xid <= u.xid::xid8
        order by inserted_xid
        offset 0
      ) as r
    )
  ) as a
  where not age_capped
    and (rank, seq) <= (%(after_rank)s, %(after_seq)s)
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(max_arrivals)s
),
late as materialized (
  select r.*
  from arrivals c
  cross join lateral (
    select ctid, id, current_setting('forebay_tx.now')::bigint - rank as effective_priority, seq, true as is_late
    from forebay.ready
    where ctid = c.ctid
    for update skip locked
  ) as r
  limit %(room)s
),
age_capped as materialized (
  select ctid, id, %(cap_ms)s - rank as effective_priority, seq, false as is_late
  from forebay.ready
  where queue = %(queue)s
    and age_capped = true
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(room)s
  for update skip locked
),
first as (
  select ctid, id, effective_priority, seq, is_late from uncapped
  union all
  select ctid, id, effective_priority, seq, is_late from late
  union all
  select ctid, id, effective_priority, seq, is_late from age_capped
  order by effective_priority desc, seq
  limit %(room)s
)
-- The number of arrivals is answered even if other transactions have locked all of them.
select f.ctid::text, f.effective_priority, null::text as lane, f.is_late, c.arrivals,
  extract(epoch from clock_timestamp() - statement_timestamp())::double precision as seconds, j.id, j.seq, j.queue,
  j.task, case when octet_length(j.payload) <= %(max_payload)s then j.payload else ''::bytea end as payload,
  j.priority, j.options, j.attempt, j.failures, j.crashes, j.created_at, j.ready_at, j.run_at, j.rank, j.age_capped,
  j.deadline_at, j.expires_at, j.unique_key, j.errors
from (select count(*) as arrivals from arrivals) as c
left join first f on true
left join lateral (select * from forebay.jobs where id = f.id offset 0) as j on true;

-- name: claim: turn candidates that this transaction has locked into leases; the row of the job is not touched.
-- Guarantees: a ctid names one row, since this transaction holds its lock.
with taken as (
  delete from forebay.ready where ctid = any(%(ctids)b::text[]::tid[])
),
passed as (
  delete from forebay.side_lanes where ctid = any(%(lane_ctids)b::text[]::tid[])
)
insert into forebay.leases (
  id, seq, queue, attempt, worker, lease_expires_at, started_at, updated_at, lease_limit_at, lease_ms
)
select c.id, c.seq, %(queue)s::text, c.attempt, %(worker)s::text, c.lease_expires_at, %(now)s, %(now)s,
  c.lease_limit_at, c.lease_ms
from unnest(
  %(ids)b::text[], %(seqs)b::bigint[], %(attempts)b::bigint[], %(lease_ends)b::bigint[], %(lease_limits)b::bigint[],
  %(lease_times)b::bigint[]
) as c (id, seq, attempt, lease_expires_at, lease_limit_at, lease_ms);

-- name: ready_lock: lock a pending job by its rank; no row means that it has moved or another transaction holds it.
-- Cost: a range of one rank in the order of the primary key. If the table was analysed when it was empty, the index of
-- arrivals would seem as good, and the whole queue would be read.
select 1
from forebay.ready
where queue = %(queue)s
  and age_capped = %(age_capped)s
  and (rank, seq) >= (%(rank)s, %(seq)s)
  and (rank, seq) <= (%(rank)s, %(seq)s)
order by rank, seq
for update skip locked;

-- name: lane_candidates: lock and read the first jobs of one side lane; columns as in `candidates`.
-- Locks: SKIP LOCKED.
-- Index: side_lanes_order.
with uncapped as materialized (
  select ctid, id, current_setting('forebay_tx.now')::bigint - rank as effective_priority, seq
  from forebay.side_lanes
  where queue = %(queue)s and lane = %(lane)s and age_capped = false
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(room)s
  for update skip locked
),
age_capped as materialized (
  select ctid, id, %(cap_ms)s - rank as effective_priority, seq
  from forebay.side_lanes
  where queue = %(queue)s and lane = %(lane)s and age_capped = true
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(room)s
  for update skip locked
),
first as (
  select ctid, id, effective_priority, seq from uncapped
  union all
  select ctid, id, effective_priority, seq from age_capped
  order by effective_priority desc, seq
  limit %(room)s
)
select f.ctid::text, f.effective_priority, %(lane)s::text as lane, false, 0::bigint,
  0::double precision, j.id, j.seq, j.queue, j.task,
  case when octet_length(j.payload) <= %(max_payload)s then j.payload else ''::bytea end as payload, j.priority, j.options,
  j.attempt, j.failures, j.crashes, j.created_at, j.ready_at, j.run_at, j.rank, j.age_capped, j.deadline_at,
  j.expires_at, j.unique_key, j.errors
from first f
cross join lateral (select * from forebay.jobs where id = f.id offset 0) as j;

-- name: fairness_candidates: lock and read the first jobs of fairness lanes, so many of each; columns as in
-- `candidates`.
-- Locks: SKIP LOCKED.
-- Index: side_lanes_order.
with wanted as materialized (
  select lane, room from unnest(%(lanes)b::text[], %(rooms)b::bigint[]) as w (lane, room)
),
uncapped as materialized (
  select w.lane, w.room, g.*
  from wanted w
  cross join lateral (
    select ctid, id, current_setting('forebay_tx.now')::bigint - rank as effective_priority, seq
    from forebay.side_lanes
    where queue = %(queue)s and lane = w.lane and age_capped = false
      and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
    order by rank, seq
    limit w.room
    for update skip locked
  ) as g
),
age_capped as materialized (
  select w.lane, w.room, g.*
  from wanted w
  cross join lateral (
    select ctid, id, %(cap_ms)s - rank as effective_priority, seq
    from forebay.side_lanes
    where queue = %(queue)s and lane = w.lane and age_capped = true
      and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
    order by rank, seq
    limit w.room
    for update skip locked
  ) as g
),
first as (
  select a.*, row_number() over (partition by a.lane order by a.effective_priority desc, a.seq) as nth
  from (select * from uncapped union all select * from age_capped) as a
)
select f.ctid::text, f.effective_priority, f.lane as lane, false, 0::bigint,
  0::double precision, j.id, j.seq, j.queue, j.task,
  case when octet_length(j.payload) <= %(max_payload)s then j.payload else ''::bytea end as payload, j.priority, j.options,
  j.attempt, j.failures, j.crashes, j.created_at, j.ready_at, j.run_at, j.rank, j.age_capped, j.deadline_at,
  j.expires_at, j.unique_key, j.errors
from first f
cross join lateral (select * from forebay.jobs where id = f.id offset 0) as j
where f.nth <= f.room
order by f.lane, f.nth;

-- name: park: move candidates that this worker cannot run, or whose limit is full, to side lanes.
-- `touched_ids` leaves out the jobs of a caller that holds limits or a fairness lock. Other transactions wait for these
-- locks while they hold rows of ended jobs; an insert may wait for such a row while it holds the row of a job to be
-- touched.
with removed as (
  delete from forebay.ready where ctid = any(%(ctids)b::text[]::tid[])
),
marked as (
  update forebay.jobs set updated_at = %(now)s where id = any(%(touched_ids)b::text[])
)
insert into forebay.side_lanes (id, queue, lane, age_capped, rank, seq, expires_at)
select h.id, %(queue)s::text, h.lane, h.age_capped, h.rank, h.seq, h.expires_at
from unnest(
  %(ids)b::text[], %(lanes)b::text[], %(age_capped)b::boolean[], %(ranks)b::bigint[], %(seqs)b::bigint[],
  %(expires_at)b::bigint[]
) as h (id, lane, age_capped, rank, seq, expires_at);

-- name: unpark: delete side-lane rows that this transaction has locked.
delete from forebay.side_lanes where ctid = any(%(ctids)b::text[]::tid[]);

-- name: lane_counts: count the jobs in each side lane.
select queue, lane, count(*)
from forebay.side_lanes
group by queue, lane
order by queue, lane;

-- name: lane_jobs_lock: lock a job in a side lane; no row if another transaction holds it.
select 1 from forebay.side_lanes where id = %(id)s for update skip locked;

-- name: lanes_among: those of these lanes of a queue that have jobs, by one probe for each.
select w.lane
from unnest(%(lanes)b::text[]) as w (lane)
where exists (select 1 from forebay.side_lanes g where g.queue = %(queue)s and g.lane = w.lane offset 0)
order by w.lane;

-- name: lanes_claimable: lanes of a queue that have jobs and that some worker accepts, by one probe for each lane and
-- one more. Limit lanes sort before all of these and are skipped.
-- Index: side_lanes_order (queue, lane, ...).
with recursive found (lane) as (
  (select lane from forebay.side_lanes where queue = %(queue)s and lane > 'l~' order by lane limit 1)
  union all
  select (
    select g.lane
    from forebay.side_lanes g
    where g.queue = %(queue)s and g.lane > found.lane
    order by g.lane
    limit 1
  )
  from found
  where found.lane is not null
)
select lane from found where lane is not null limit %(limit)s;

-- name: lanes_unpark: move the first jobs of limit lanes back to the main order of their queue, so many of each.
-- Locks: SKIP LOCKED.
-- Index: side_lanes_order.
with first as materialized (
  select g.*
  from unnest(%(lanes)b::text[], %(rooms)b::bigint[]) as w (lane, room)
  cross join lateral (
    select ctid, age_capped, rank, seq, id, expires_at
    from forebay.side_lanes
    where queue = %(queue)s and lane = w.lane
    order by age_capped, rank, seq
    limit w.room
    for update skip locked
  ) as g
),
removed as (
  delete from forebay.side_lanes where ctid = any(array(select ctid from first))
)
insert into forebay.ready (queue, age_capped, rank, seq, id, expires_at)
select %(queue)s, age_capped, rank, seq, id, expires_at from first
returning id;
