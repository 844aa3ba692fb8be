-- sequences_lock: lock sequences until the transaction ends; no other transaction changes them. Their rows are read by
-- later statements.
-- Locks: by hash, as everywhere.
select pg_advisory_xact_lock(hashtext('forebay.sequences'), s.lock)
from (select distinct hashtext(name) as lock from unnest(%(names)b::text[]) as n (name) order by lock) as s;
