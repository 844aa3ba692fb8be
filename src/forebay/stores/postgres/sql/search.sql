-- search: matching jobs, newest first.
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
