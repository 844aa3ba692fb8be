-- next_seqs: seqs for new jobs. Those of two inserts at once may interleave, and none is used twice.
-- Guarantees: from here on the transaction has an xid and a lock on `jobs` that `active_writers` sees. So a rescore
-- does not finish before it has ended; the settings of queues are read later.
with registered as (
  update forebay.jobs set seq = seq where false
)
select nextval('forebay.job_seq')
from generate_series(1, %(jobs)s)
where pg_current_xact_id() is not null;
