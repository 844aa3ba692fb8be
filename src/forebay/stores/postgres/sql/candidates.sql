-- candidates: lock the next jobs of the main order of a queue and read them. They are not taken yet: the caller decides
-- which of them it runs, and `claim` or `park` moves these in the same transaction.
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
