-- insert: new live jobs. The last line is repeated for each job of a call, up to 64 at a time: one run of
-- the statement for many rows costs 4.2 us a job, a run for each 6.8 us. That is why its parameters have
-- no names. Guarantees: a seq or a brought id that is taken fails the whole call.
insert into forebay_jobs (
  seq, id, by_id, queue, task, state, priority, options, created_at, updated_at, ready_at, run_at, rank,
  capped, rescore_at, deadline_at, expires_at, unique_key, payload
)
values
(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
