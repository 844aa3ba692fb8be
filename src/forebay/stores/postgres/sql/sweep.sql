-- sweep: take over leases that `expired_leases` has locked, as leases of the sweeper on the same attempts.
-- Guarantees: from here on writes of the old holder are refused, since the worker differs. The first holder is kept for
-- the history.
update forebay.leases
set swept_from = coalesce(swept_from, worker),
    worker = %(sweeper)s,
    lease_expires_at = %(now)s + %(lease_ms)s,
    updated_at = %(now)s
where id = any(%(ids)b::text[]);
