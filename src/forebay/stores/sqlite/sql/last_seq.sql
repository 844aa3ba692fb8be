-- last_seq: greatest seq that was given. A job is in one of the three tables until it is removed. A counted
-- and then deleted job must not have its seq reused, or the next job would not be counted.
select max(
  coalesce((select jobs from forebay_queue_counts where queue = '' and state = 'counted'), 0),
  coalesce((select max(seq) from forebay_jobs), 0),
  coalesce((select max(seq) from forebay_finished), 0),
  coalesce((select max(seq) from forebay_dead), 0)
);
