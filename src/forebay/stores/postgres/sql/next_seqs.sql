-- next_seqs: numbers for new jobs. Two inserts at once may interleave, and none is used twice.
-- Guarantees: from here on the transaction has a number and the lock of those who write to `jobs`, so that a change of
-- scoring is not done with before this has ended; the settings of queues are looked at later.
with registered as (
  update forebay.jobs set seq = seq where false
)
select nextval('forebay.job_seq')
from generate_series(1, %(jobs)s)
where pg_current_xact_id() is not null;
