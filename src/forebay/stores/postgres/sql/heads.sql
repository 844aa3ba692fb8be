-- heads: lock the jobs that come next in a queue's order and look at them. They are not taken yet: the caller
-- decides which of them are for it, and `claim` or `hold` moves these in the same transaction.
-- Guarantees: what another claim has locked is passed over (SKIP LOCKED), so nobody waits and no job is given
-- twice. Whoever changes a waiting job replaces its narrow row, so what is locked here is not out of date.
-- Relies on the primary key of ready: one range for each class, the ordinary one from the cursor on; and on index
-- ready_arrived for what came in behind the cursor. These are found first and ordered then (`offset 0`): else the
-- planner might walk the whole order with all its dead rows.
with plain as materialized (
  select ctid as spot, id, current_setting('forebay_tx.now')::bigint - rank as lead, seq, false as is_late
  from forebay.ready
  where queue = %(queue)s
    and capped = false
    and (rank, seq) > (%(after_rank)s, %(after_seq)s)
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(room)s
  for update skip locked
),
came as materialized (
  select spot
  from (
    (
      select ctid as spot, capped, rank, seq, expires_at
      from forebay.ready
      where queue = %(queue)s and arrived >= %(xmax)s::text::xid8
      offset 0
    )
    union all
    (
      select ctid, capped, rank, seq, expires_at
      from forebay.ready
      where queue = %(queue)s and arrived = any(%(under_way)b::text[]::xid8[])
      offset 0
    )
  ) as a
  where not capped
    and (rank, seq) <= (%(after_rank)s, %(after_seq)s)
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  -- One more than can be taken tells whether any is left.
  limit %(room)s + 1
),
late as materialized (
  select ctid as spot, id, current_setting('forebay_tx.now')::bigint - rank as lead, seq, true as is_late
  from forebay.ready
  where ctid = any(array(select spot from came))
  for update skip locked
),
capped as materialized (
  select ctid as spot, id, %(cap_ms)s - rank as lead, seq, false as is_late
  from forebay.ready
  where queue = %(queue)s
    and capped = true
    and (expires_at is null or expires_at > current_setting('forebay_tx.now')::bigint)
  order by rank, seq
  limit %(room)s
  for update skip locked
),
first as (
  select spot, id, lead, seq, is_late from plain
  union all
  select spot, id, lead, seq, is_late from late
  union all
  select spot, id, lead, seq, is_late from capped
  order by lead desc, seq
  limit %(room)s
)
select f.spot::text, f.lead, null::text as behind, f.is_late, (select count(*) from came), j.id, j.seq, j.queue,
  j.task, j.payload, j.priority, j.options, j.attempt, j.failures, j.crashes, j.created_at, j.ready_at, j.run_at,
  j.rank, j.capped, j.deadline_at, j.expires_at, j.unique_key, j.errors
from first f
join forebay.jobs j on j.id = f.id;
