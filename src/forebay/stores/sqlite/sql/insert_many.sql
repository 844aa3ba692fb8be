-- insert_many: new live jobs that have all but the last five values in common. The line of values is written
-- for each of them: a row costs 2.9 us that way, and 5.5 us with all its values.
-- Guarantees: a seq or a brought id that is taken fails the whole call.
insert into forebay_jobs (
  has_custom_id, queue, task, state, priority, created_at, updated_at, ready_at, run_at, rank, age_capped, rescore_at,
  deadline_at, expires_at, unmet, seq, id, options, unique_key, payload
)
select ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, new.*
from (values
(?, ?, ?, ?, ?)
) as new;
