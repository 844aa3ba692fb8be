-- options_of: the settings of running jobs as they are stored.
-- Guarantees: current, because the caller has locked the leases, and `amend_running` does so before it writes.
-- Index: primary key.
select id, options from forebay.jobs where id = any(%(ids)b::text[]);
