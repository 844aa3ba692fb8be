-- search_window: the first and last seq of one scan among final jobs, however few match; null at the end of the list.
-- At most one of queue, task, unique_key and cancelled is given and selects the list. Live jobs have one list.
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
