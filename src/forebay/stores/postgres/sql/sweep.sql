-- sweep: take over leases that `overdue` has locked, as leases of the sweeper on the same attempts.
-- Guarantees: from here on the old holder's writes are refused, since the worker differs; the first holder is
-- remembered for the history.
update forebay.leases
set swept_from = coalesce(swept_from, worker),
    worker = %(sweeper)s,
    lease_expires_at = %(now)s + %(lease_ms)s,
    updated_at = %(now)s
where id = any(%(ids)b::text[]);
