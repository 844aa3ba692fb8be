-- candidates: lock the jobs that come next in a queue's order and look at them. They are not taken yet: the caller
-- decides which of them are for it, and `claim` or `hold` moves these in the same transaction.
-- Guarantees: what another claim has locked is passed over (SKIP LOCKED), so nobody waits and no job is given
-- twice. Whoever changes a waiting job replaces its narrow row, so what is locked here is not out of date.
-- Relies on the primary key of ready: one range for each class, the ordinary one from the cursor on; and on index
-- ready_arrived for what came in behind the cursor. These are found first, in the order of that index (where the table
-- was empty when it was analysed, the other one seems to cost the same), and ordered then (`offset 0`): else the planner
-- might walk the whole order with all its dead rows.
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
-- How many came is answered even if all of them are in the hands of others.
select f.ctid::text, f.effective_priority, null::text as lane, f.is_late, c.arrivals,
  extract(epoch from clock_timestamp() - statement_timestamp())::double precision as seconds, j.id, j.seq, j.queue,
  j.task, case when octet_length(j.payload) <= %(max_payload)s then j.payload else ''::bytea end as payload, j.priority, j.options, j.attempt, j.failures, j.crashes, j.created_at, j.ready_at, j.run_at,
  j.rank, j.age_capped, j.deadline_at, j.expires_at, j.unique_key, j.errors
from (select count(*) as arrivals from arrivals) as c
left join first f on true
left join lateral (select * from forebay.jobs where id = f.id offset 0) as j on true;
