-- name: search: matching jobs, newest first.
-- Unreadable options count as none, so that they stop no listing. Metadata is compared as JSON text, since jsonb takes
-- 1 and 1.0 for the same. PostgreSQL reads no JSON with a zero character, which metadata may have, so U+2400 replaces
-- it on both sides.
select id, queue, task, state, priority, attempt, failures, created_at, run_at, started_at, finished_at,
  worker, reason, options, seq
from forebay.all_jobs
cross join lateral (select replace(options, '\u0000', '\u2400') as readable) as o
where location = any(%(locations)b::text[])
  and seq < coalesce(%(after)s::bigint, 9223372036854775807)
  and seq >= coalesce(%(until)s::bigint, 0)
  and (location = 'live' or seq <= coalesce(%(first)s::bigint, 0))
  and (location = 'live' or %(seqs)b::bigint[] is null or seq = any(%(seqs)b::bigint[]))
  and (%(queue)s::text is null or queue = %(queue)s::text)
  and (%(task)s::text is null or task = %(task)s::text)
  and (%(states)b::text[] is null or state = any(%(states)b::text[]))
  and (%(queues)b::text[] is null or queue = any(%(queues)b::text[]))
  and (%(tasks)b::text[] is null or task = any(%(tasks)b::text[]))
  and (%(priority_from)s::bigint is null or priority >= %(priority_from)s::bigint)
  and (%(priority_to)s::bigint is null or priority <= %(priority_to)s::bigint)
  and (%(created_from)s::bigint is null or created_at >= %(created_from)s::bigint)
  and (%(created_before)s::bigint is null or created_at < %(created_before)s::bigint)
  and (%(finished_before)s::bigint is null or finished_at < %(finished_before)s::bigint)
  and (%(unique_key)s::text is null or unique_key = %(unique_key)s::text)
  and (not %(in_options)s::boolean or options is not null)
  and (%(idempotency_key)s::text is null or forebay.try_json(readable) ->> 'idempotency_key' = %(idempotency_key)s::text)
  and (
    %(correlation_id)s::text is null or forebay.try_json(readable) ->> 'correlation_id' = %(correlation_id)s::text
  )
  and (%(parent_id)s::text is null or forebay.try_json(readable) ->> 'parent_id' = %(parent_id)s::text)
  and (
    %(tags)b::text[] is null
    or not exists (
      select 1
      from unnest(%(tags)b::text[]) as wanted (tag)
      where wanted.tag not in (
        select json_array_elements_text(coalesce(forebay.try_json(readable) -> 'tags', '[]'::json))
      )
    )
  )
  and (
    %(metadata_keys)b::text[] is null
    or not exists (
      select 1
      from unnest(%(metadata_keys)b::text[], %(metadata_values)b::text[]) as wanted (key, value)
      where (forebay.try_json(readable) -> 'metadata' -> wanted.key)::text
        is distinct from replace(wanted.value, '\u0000', '\u2400')
    )
  )
  and (
    %(text)s::text is null
    or position(convert_to(%(text)s::text, 'UTF8') in payload) > 0
    or position(%(text)s::text in coalesce(reason, '')) > 0
  )
order by seq desc
limit %(limit)s;

-- name: search_hashes: the seqs of final jobs that have all of these texts in their options, in no order, at most
-- `limit`.
-- Index: finished_search_hashes and dead_search_hashes, whose condition is repeated here.
with wanted as (
  select array(select hashtextextended(mark, 0) from unnest(%(texts)b::text[]) as mark) as marks
)
select seq
from (
  select seq
  from forebay.finished
  where options ~ '"(tags|idempotency_key|correlation_id|parent_id)":'
    and forebay.search_hashes(options) @> (select marks from wanted)
    and 'finished' = any(%(locations)b::text[])
  union all
  select seq
  from forebay.dead
  where options ~ '"(tags|idempotency_key|correlation_id|parent_id)":'
    and forebay.search_hashes(options) @> (select marks from wanted)
    and 'dead' = any(%(locations)b::text[])
) as marked
where seq < coalesce(%(after)s::bigint, 9223372036854775807)
limit %(limit)s;

-- name: search_moment: the seq up to which jobs were created before a time. Seqs grow with time, so each probe of one
-- job halves the range; the caller allows for clocks that were set.
-- Index: the indexes by seq of the three tables. At the end no job lies between `low` and `high`.
with recursive halves (low, high) as (
  select 0::bigint, (select max(seq) + 1 from forebay.job_index)
  union all
  select
    case when found.created_at >= %(moment)s then low else middle end,
    case when found.created_at >= %(moment)s then found.seq else high end
  from halves
  cross join lateral (select (low + high) / 2 as middle) as m
  left join lateral (
    select seq, created_at
    from forebay.job_index
    where seq > low and seq <= middle
    order by seq desc
    limit 1
  ) as found on true
  where high - low > 1
)
select low from halves order by high - low limit 1;

-- name: search_planning: plan each search for its own conditions, and allow bitmap scans: search hashes are in an index
-- that can only be read as a whole.
select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_bitmapscan', 'on', true),
  set_config('random_page_cost', '1', true);

-- name: search_reached: the creation time of the job at which a scan has ended.
select created_at from forebay.job_index where seq = %(seq)s limit 1;

-- name: search_window: the first and last seq of one scan among final jobs, however few match; null at the end of the
-- list. At most one of queue, task, unique_key and cancelled is given and selects the list. Live jobs have one list.
-- Index: jobs_seq, and for each list one index of `finished` and of `dead`.
with live as (
  select seq
  from forebay.jobs
  where 'live' = any(%(locations)b::text[])
    and seq < coalesce(%(after)s::bigint, 9223372036854775807)
    and seq >= coalesce(%(since)s::bigint, 0)
  order by seq desc
  limit 1 offset %(rows)s
),
ended as (
  select seq
  from forebay.job_index
  where location <> 'live'
    and location = any(%(locations)b::text[])
    and seq < coalesce(%(after)s::bigint, 9223372036854775807)
    and seq >= coalesce(%(since)s::bigint, 0)
    and (%(queue)s::text is null or queue = %(queue)s::text)
    and (%(task)s::text is null or task = %(task)s::text)
    and (%(unique_key)s::text is null or unique_key = %(unique_key)s::text)
    and (not %(cancelled)s::boolean or state = 'cancelled')
  order by seq desc
  limit %(rows)s + 1
)
select
  (select max(seq) from ended),
  greatest((select seq from live), (select min(seq) from ended having count(*) > %(rows)s));
