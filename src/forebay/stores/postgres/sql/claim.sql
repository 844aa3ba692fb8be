-- claim: turn candidates that this transaction has locked into leases; the row of the job is not touched.
-- Guarantees: a ctid names one row, since this transaction holds its lock.
with taken as (
  delete from forebay.ready where ctid = any(%(ctids)b::text[]::tid[])
),
passed as (
  delete from forebay.side_lanes where ctid = any(%(lane_ctids)b::text[]::tid[])
)
insert into forebay.leases (
  id, seq, queue, attempt, worker, lease_expires_at, started_at, updated_at, lease_limit_at, lease_ms
)
select c.id, c.seq, %(queue)s::text, c.attempt, %(worker)s::text, c.lease_expires_at, %(now)s, %(now)s,
  c.lease_limit_at, c.lease_ms
from unnest(
  %(ids)b::text[], %(seqs)b::bigint[], %(attempts)b::bigint[], %(lease_ends)b::bigint[], %(lease_limits)b::bigint[],
  %(lease_times)b::bigint[]
) as c (id, seq, attempt, lease_expires_at, lease_limit_at, lease_ms);
