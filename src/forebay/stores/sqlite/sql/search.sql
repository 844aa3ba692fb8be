-- name: search: jobs that match, newest first, between :until and :after.
-- Damaged options (json_valid) count as none, so that they stop no listing.
-- Index: the rowid of each table, merged in order; :until keeps the scan short when few rows match. `instr`,
-- because a condition on constants alone is evaluated once and leaves a whole table out; with `in (select
-- ...)` every row of it would be read.
select id, queue, task, state, priority, attempt, failures, created_at, run_at, started_at, finished_at,
  worker, reason, options, seq
from forebay_all_jobs
where instr(:locations, location) > 0
  and seq < coalesce(:after, 9223372036854775807)
  and seq >= coalesce(:until, 0)
  and (:states is null or state in (select value from json_each(:states)))
  and (:queues is null or queue in (select value from json_each(:queues)))
  and (:tasks is null or task in (select value from json_each(:tasks)))
  and (:priority_from is null or priority >= :priority_from)
  and (:priority_to is null or priority <= :priority_to)
  and (:created_from is null or created_at >= :created_from)
  and (:created_before is null or created_at < :created_before)
  and (:finished_before is null or finished_at < :finished_before)
  and (:unique_key is null or unique_key = :unique_key)
  and (:idempotency_key is null or iif(json_valid(options), options, null) ->> 'idempotency_key' = :idempotency_key)
  and (:correlation_id is null or iif(json_valid(options), options, null) ->> 'correlation_id' = :correlation_id)
  and (:parent_id is null or iif(json_valid(options), options, null) ->> 'parent_id' = :parent_id)
  and (
    :tags is null
    or not exists (
      select 1
      from json_each(:tags) wanted
      where wanted.value not in (
        select value from json_each(coalesce(iif(json_valid(options), options, null) -> 'tags', '[]'))
      )
    )
  )
  and (
    :metadata is null
    or not exists (
      select 1
      from json_each(:metadata) wanted
      where not exists (
        select 1
        from json_each(coalesce(iif(json_valid(options), options, null) -> 'metadata', '{}')) has
        where has.key = wanted.key
          and has.type = wanted.type
          and has.value is wanted.value
      )
    )
  )
  and (:text is null or instr(payload, cast(:text as blob)) > 0 or instr(coalesce(reason, ''), :text) > 0)
order by seq desc
limit :limit;

-- name: search_window: seq at which one scan of a search ends, however few rows match, and when that job was
-- created.
select seq, created_at
from forebay_all_jobs
where instr(:locations, location) > 0
  and seq < coalesce(:after, 9223372036854775807)
order by seq desc
limit 1 offset :rows;
