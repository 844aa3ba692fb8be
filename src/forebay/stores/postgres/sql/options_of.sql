-- options_of: options of running jobs as stored.
-- Guarantees: current, since the caller has locked the leases, and `update_running` locks them before it writes.
-- Index: primary key.
select id, options from forebay.jobs where id = any(%(ids)b::text[]);
