-- claim: what `heads` has locked becomes a lease; the row of the job itself is not touched.
-- ctid names a row for certain here: this transaction holds its lock.
with taken as (
  delete from forebay.ready where ctid = any(%(spots)b::text[]::tid[])
),
passed as (
  delete from forebay.gated where ctid = any(%(gated_spots)b::text[]::tid[])
)
insert into forebay.leases (id, seq, queue, attempt, worker, until, started_at, updated_at, latest_at, lease_ms)
select c.id, c.seq, %(queue)s::text, c.attempt, %(worker)s::text, c.until, %(now)s, %(now)s, c.latest_at, c.lease_ms
from unnest(
  %(ids)b::text[], %(seqs)b::bigint[], %(attempts)b::bigint[], %(untils)b::bigint[], %(latest)b::bigint[],
  %(leases)b::bigint[]
) as c (id, seq, attempt, until, latest_at, lease_ms);
