-- gates: behind which gates of a queue jobs wait that somebody can pass, by one probe for each of them and one more.
-- Those of limits come before all others, and are stepped over.
-- Relies on index forebay_jobs_ready (queue, gate, capped, rank).
with recursive closed (gate) as (
  select min(gate) from forebay_jobs where state = 'pending' and queue = :queue and gate > 'l~'
  union all
  select (
    select min(gate) from forebay_jobs where state = 'pending' and queue = :queue and gate > closed.gate
  )
  from closed
  where closed.gate is not null
  limit :limit
)
select gate from closed where gate is not null;
