-- lane_candidates: lock and read the first jobs of one side lane; columns as in `candidates`.
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
