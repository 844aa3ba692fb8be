-- fairness_candidates: lock and read the first jobs of fairness lanes, so many of each; columns as in `candidates`.
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
