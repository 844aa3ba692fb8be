-- gated_heads: lock the jobs at the head of one gate's order and look at them, like `heads`.
-- Relies on index gated_order.
with plain as materialized (
  select ctid as spot, id, current_setting('forebay_tx.now')::bigint - rank as lead, seq
  from forebay.gated
  where queue = %(queue)s and gate = %(gate)s and capped = false
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(room)s
  for update skip locked
),
capped as materialized (
  select ctid as spot, id, %(cap_ms)s - rank as lead, seq
  from forebay.gated
  where queue = %(queue)s and gate = %(gate)s and capped = true
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(room)s
  for update skip locked
),
first as (
  select spot, id, lead, seq from plain
  union all
  select spot, id, lead, seq from capped
  order by lead desc, seq
  limit %(room)s
)
select f.spot::text, f.lead, %(gate)s::text as behind, false, 0::bigint,
  0::double precision, j.id, j.seq, j.queue, j.task,
  case when octet_length(j.payload) <= %(max_payload)s then j.payload else ''::bytea end as payload, j.priority, j.options,
  j.attempt, j.failures, j.crashes, j.created_at, j.ready_at, j.run_at, j.rank, j.capped, j.deadline_at,
  j.expires_at, j.unique_key, j.errors
from first f
cross join lateral (select * from forebay.jobs where id = f.id offset 0) as j;
