-- last_seq: the greatest seq that was given. A job is in one of the three tables until it is forgotten; one
-- that was counted and then deleted must not have its seq used again, or the next job would not be counted.
select max(
  coalesce((select jobs from forebay_queue_counts where queue = '' and state = 'counted'), 0),
  coalesce((select max(seq) from forebay_jobs), 0),
  coalesce((select max(seq) from forebay_finished), 0),
  coalesce((select max(seq) from forebay_dead), 0)
);
