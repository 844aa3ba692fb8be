-- fair_heads: lock the first jobs behind the gates of shares, so many of each, and look at them, like `heads`.
-- Relies on index gated_order.
with wanted as materialized (
  select gate, room from unnest(%(gates)b::text[], %(rooms)b::bigint[]) as w (gate, room)
),
plain as materialized (
  select w.gate, w.room, g.*
  from wanted w
  cross join lateral (
    select ctid as spot, id, current_setting('forebay_tx.now')::bigint - rank as lead, seq
    from forebay.gated
    where queue = %(queue)s and gate = w.gate and capped = false
      and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
    order by rank, seq
    limit w.room
    for update skip locked
  ) as g
),
capped as materialized (
  select w.gate, w.room, g.*
  from wanted w
  cross join lateral (
    select ctid as spot, id, %(cap_ms)s - rank as lead, seq
    from forebay.gated
    where queue = %(queue)s and gate = w.gate and capped = true
      and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
    order by rank, seq
    limit w.room
    for update skip locked
  ) as g
),
first as (
  select a.*, row_number() over (partition by a.gate order by a.lead desc, a.seq) as place
  from (select * from plain union all select * from capped) as a
)
select f.spot::text, f.lead, f.gate as behind, false, 0::bigint,
  0::double precision, j.id, j.seq, j.queue, j.task,
  case when octet_length(j.payload) <= %(max_payload)s then j.payload else ''::bytea end as payload, j.priority, j.options,
  j.attempt, j.failures, j.crashes, j.created_at, j.ready_at, j.run_at, j.rank, j.capped, j.deadline_at,
  j.expires_at, j.unique_key, j.errors
from first f
cross join lateral (select * from forebay.jobs where id = f.id offset 0) as j
where f.place <= f.room
order by f.gate, f.place;
