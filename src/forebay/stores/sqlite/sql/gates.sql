-- gates: behind which gates of a queue jobs wait, by one probe for each of them and one more.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank).
with recursive closed (gate) as (
  select min(gate) from forebay_jobs where state = 'pending' and queue = :queue and gate > ''
  union all
  select (
    select min(gate) from forebay_jobs where state = 'pending' and queue = :queue and gate > closed.gate
  )
  from closed
  where closed.gate is not null
  limit :limit
)
select gate from closed where gate is not null;
